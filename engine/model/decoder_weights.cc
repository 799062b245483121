#include "engine/model/decoder_weights.h"

#include <set>
#include <string>
#include <vector>

namespace folio {
namespace {

// Takes tensors by name with the shape they must have, and knows at the end which were not taken.
class Loader {
 public:
  // Without a backend it only checks.
  Loader(const GgufFile& file, Backend* backend) : file_(file), backend_(backend) {}

  std::unique_ptr<WeightMatrix> matrix(const std::string& name, std::int32_t depth, std::int32_t columns) {
    const GgufTensor& tensor = take(name, {depth, columns});
    if (backend_ == nullptr) return nullptr;
    auto matrix = backend_->load_matrix(tensor);
    file_.give_back(tensor);
    return matrix;
  }

  const float* vector(const std::string& name, std::int32_t size) {
    const GgufTensor& tensor = take(name, {size});
    if (tensor.type != TensorType::kF32 && tensor.type != TensorType::kF16 && tensor.type != TensorType::kBF16) {
      file_.fail("tensor " + name + " is " + tensor_type_info(tensor.type).name + ", expected F32, F16 or BF16");
    }
    if (backend_ == nullptr) return nullptr;
    std::vector<float> values(static_cast<std::size_t>(size));
    dequantize(tensor.type, tensor.data, values);
    return backend_->load_vector(values);
  }

  const float* vector_if_present(const std::string& name, std::int32_t size) {
    return has(name) ? vector(name, size) : nullptr;
  }

  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  void note(const std::string& name) { taken_.insert(name); }

  // A weight that the forward pass would leave out means another model than the metadata says.
  void refuse_leftovers() const {
    for (const GgufTensor& tensor : file_.tensors()) {
      if (!taken_.contains(std::string(tensor.name))) {
        file_.fail("tensor " + std::string(tensor.name) +
                   " has no place in this architecture: the model is not supported");
      }
    }
  }

 private:
  const GgufTensor& take(const std::string& name, const std::vector<std::int32_t>& shape) {
    const GgufTensor& tensor = file_.get_tensor(name);
    bool fits = tensor.shape.size() == shape.size();
    for (std::size_t i = 0; fits && i < shape.size(); ++i)
      fits = tensor.shape[i] == static_cast<std::uint64_t>(shape[i]);
    if (!fits) file_.fail("tensor " + name + " has shape " + text(tensor.shape) + ", expected " + text(shape));
    note(name);
    return tensor;
  }

  template <class Shape>
  static std::string text(const Shape& shape) {
    std::string out = "[";
    for (const auto n : shape) out += (out.size() > 1 ? ", " : "") + std::to_string(n);
    return out + "]";
  }

  const GgufFile& file_;
  Backend* backend_;
  std::set<std::string> taken_;
};

DecoderLayer load_layer(Loader& load, const DecoderConfig& config, const std::string& prefix) {
  const std::int32_t hidden = config.hidden_size;
  const AttentionShape& shape = config.attention;
  const std::int32_t q_size = shape.num_heads * shape.head_dim;
  const std::int32_t kv_size = shape.num_kv_heads * shape.head_dim;
  DecoderLayer layer;
  layer.attention_norm = load.vector(prefix + "attn_norm.weight", hidden);
  layer.q = load.matrix(prefix + "attn_q.weight", hidden, q_size);
  layer.k = load.matrix(prefix + "attn_k.weight", hidden, kv_size);
  layer.v = load.matrix(prefix + "attn_v.weight", hidden, kv_size);
  layer.q_bias = load.vector_if_present(prefix + "attn_q.bias", q_size);
  layer.k_bias = load.vector_if_present(prefix + "attn_k.bias", kv_size);
  layer.v_bias = load.vector_if_present(prefix + "attn_v.bias", kv_size);
  if (config.has_qk_norm) {
    layer.q_norm = load.vector(prefix + "attn_q_norm.weight", shape.head_dim);
    layer.k_norm = load.vector(prefix + "attn_k_norm.weight", shape.head_dim);
  }
  layer.attention_out = load.matrix(prefix + "attn_output.weight", q_size, hidden);
  layer.ff_norm = load.vector(prefix + "ffn_norm.weight", hidden);
  layer.gate = load.matrix(prefix + "ffn_gate.weight", hidden, config.ff_size);
  layer.up = load.matrix(prefix + "ffn_up.weight", hidden, config.ff_size);
  layer.down = load.matrix(prefix + "ffn_down.weight", config.ff_size, hidden);
  if (config.has_post_norms) {
    layer.post_attention_norm = load.vector(prefix + "post_attention_norm.weight", hidden);
    layer.post_ff_norm = load.vector(prefix + "post_ffw_norm.weight", hidden);
  }
  return layer;
}

DecoderWeights load_all(Loader& load, const DecoderConfig& config) {
  const std::int32_t hidden = config.hidden_size;
  DecoderWeights weights;
  load.note("rope_freqs.weight");  // read with the configuration
  weights.embedding = load.matrix("token_embd.weight", hidden, config.vocab_size);
  if (load.has("output.weight")) weights.own_output = load.matrix("output.weight", hidden, config.vocab_size);
  weights.output_norm = load.vector("output_norm.weight", hidden);
  for (std::int32_t i = 0; i < config.num_layers; ++i) {
    weights.layers.push_back(load_layer(load, config, "blk." + std::to_string(i) + "."));
  }
  load.refuse_leftovers();
  return weights;
}

}  // namespace

void check_weights(const GgufFile& file, const DecoderConfig& config) {
  Loader load(file, nullptr);
  load_all(load, config);
}

DecoderWeights load_weights(const GgufFile& file, const DecoderConfig& config, Backend& backend) {
  Loader load(file, &backend);
  return load_all(load, config);
}

}  // namespace folio
