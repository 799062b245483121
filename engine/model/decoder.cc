#include "engine/model/decoder.h"

#include <set>

#include "base/check.h"

namespace folio {
namespace {

enum Slot { kX, kQ, kK, kV, kAttended, kGate, kUp };

}  // namespace

// Takes tensors by name with the shape they must have, and knows at the end which were not taken.
class Decoder::Loader {
 public:
  Loader(const GgufFile& file, Backend& backend) : file_(file), backend_(backend) {}

  std::unique_ptr<WeightMatrix> matrix(const std::string& name, std::int32_t depth, std::int32_t columns) {
    const GgufTensor& tensor = take(name, {depth, columns});
    auto matrix = backend_.load_matrix(tensor);
    file_.give_back(tensor);
    return matrix;
  }

  std::vector<float> vector(const std::string& name, std::int32_t size) {
    const GgufTensor& tensor = take(name, {size});
    if (tensor.type != TensorType::kF32 && tensor.type != TensorType::kF16 && tensor.type != TensorType::kBF16) {
      file_.fail("tensor " + name + " is " + tensor_type_info(tensor.type).name + ", expected F32, F16 or BF16");
    }
    std::vector<float> values(static_cast<std::size_t>(size));
    dequantize(tensor.type, tensor.data, values);
    return values;
  }

  std::vector<float> vector_if_present(const std::string& name, std::int32_t size) {
    return file_.find_tensor(name) != nullptr ? vector(name, size) : std::vector<float>();
  }

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
  Backend& backend_;
  std::set<std::string> taken_;
};

Decoder::Decoder(const GgufFile& file, DecoderConfig config, std::int32_t max_context, std::unique_ptr<ThreadPool> pool,
                 std::unique_ptr<KvCache> cache, std::unique_ptr<Backend> backend)
    : config_(std::move(config)),
      max_context_(max_context),
      pool_(std::move(pool)),
      cache_(std::move(cache)),
      backend_(std::move(backend)) {
  const std::int32_t hidden = config_.hidden_size;
  const AttentionShape& shape = config_.attention;
  const std::int32_t q_size = shape.num_heads * shape.head_dim;
  const std::int32_t kv_size = shape.num_kv_heads * shape.head_dim;
  Loader load(file, *backend_);
  load.note("rope_freqs.weight");  // read with the configuration
  embedding_ = load.matrix("token_embd.weight", hidden, config_.vocab_size);
  if (file.find_tensor("output.weight") != nullptr)
    own_output_ = load.matrix("output.weight", hidden, config_.vocab_size);
  output_norm_ = load.vector("output_norm.weight", hidden);
  for (std::int32_t i = 0; i < config_.num_layers; ++i) {
    const std::string prefix = "blk." + std::to_string(i) + ".";
    Layer layer;
    layer.attention_norm = load.vector(prefix + "attn_norm.weight", hidden);
    layer.q = load.matrix(prefix + "attn_q.weight", hidden, q_size);
    layer.k = load.matrix(prefix + "attn_k.weight", hidden, kv_size);
    layer.v = load.matrix(prefix + "attn_v.weight", hidden, kv_size);
    layer.q_bias = load.vector_if_present(prefix + "attn_q.bias", q_size);
    layer.k_bias = load.vector_if_present(prefix + "attn_k.bias", kv_size);
    layer.v_bias = load.vector_if_present(prefix + "attn_v.bias", kv_size);
    if (config_.has_qk_norm) {
      layer.q_norm = load.vector(prefix + "attn_q_norm.weight", shape.head_dim);
      layer.k_norm = load.vector(prefix + "attn_k_norm.weight", shape.head_dim);
    }
    layer.attention_out = load.matrix(prefix + "attn_output.weight", q_size, hidden);
    layer.ff_norm = load.vector(prefix + "ffn_norm.weight", hidden);
    layer.gate = load.matrix(prefix + "ffn_gate.weight", hidden, config_.ff_size);
    layer.up = load.matrix(prefix + "ffn_up.weight", hidden, config_.ff_size);
    layer.down = load.matrix(prefix + "ffn_down.weight", config_.ff_size, hidden);
    if (config_.has_post_norms) {
      layer.post_attention_norm = load.vector(prefix + "post_attention_norm.weight", hidden);
      layer.post_ff_norm = load.vector(prefix + "post_ffw_norm.weight", hidden);
    }
    layers_.push_back(std::move(layer));
  }
  load.refuse_leftovers();
  for (const AttentionKind& kind : config_.attentions) {
    ropes_.push_back({config_.rotary_dim, config_.rope_interleaved, kind.inverse_frequencies});
  }
}

Logits Decoder::forward(const StepBatch& batch) {
  num_tokens_ = batch.num_tokens();
  FOLIO_CHECK(num_tokens_ > 0, "a step without tokens");
  backend_->begin_step(batch, ropes_);
  float* x =
      backend_->activations(kX, static_cast<std::size_t>(num_tokens_) * static_cast<std::size_t>(config_.hidden_size));
  backend_->embed(*embedding_, config_.embedding_scale, x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    run_attention(layers_[i], static_cast<int>(i), x);
    run_feed_forward(layers_[i], x);
  }
  return backend_->logits(x, norm(output_norm_), own_output_ ? *own_output_ : *embedding_);
}

void Decoder::run_attention(const Layer& layer, int index, float* x) {
  const auto tokens = static_cast<std::size_t>(num_tokens_);
  const auto q_floats = tokens * static_cast<std::size_t>(layer.q->columns());
  const auto kv_floats = tokens * static_cast<std::size_t>(layer.k->columns());
  float* q = backend_->activations(kQ, q_floats);
  float* k = backend_->activations(kK, kv_floats);
  float* v = backend_->activations(kV, kv_floats);
  float* attended = backend_->activations(kAttended, q_floats);
  const auto bias = [](const std::vector<float>& b) { return b.empty() ? nullptr : b.data(); };
  const Projection projections[] = {{layer.q.get(), bias(layer.q_bias), q},
                                    {layer.k.get(), bias(layer.k_bias), k},
                                    {layer.v.get(), bias(layer.v_bias), v}};
  backend_->norm_project(x, norm(layer.attention_norm), projections);
  const std::int32_t kind = config_.layer_attention[static_cast<std::size_t>(index)];
  backend_->rope_write_kv(index, kind, norm(layer.q_norm), norm(layer.k_norm), config_.query_scale, q, k, v);
  backend_->attend(index, config_.attentions[static_cast<std::size_t>(kind)].window, q, attended);
  backend_->project_add(attended, *layer.attention_out, norm(layer.post_attention_norm), x);
}

void Decoder::run_feed_forward(const Layer& layer, float* x) {
  const auto floats = static_cast<std::size_t>(num_tokens_) * static_cast<std::size_t>(config_.ff_size);
  float* gate = backend_->activations(kGate, floats);
  float* up = backend_->activations(kUp, floats);
  const Projection projections[] = {{layer.gate.get(), nullptr, gate}, {layer.up.get(), nullptr, up}};
  backend_->norm_project(x, norm(layer.ff_norm), projections);
  backend_->gate(config_.activation, gate, up, config_.ff_size, gate);
  backend_->project_add(gate, *layer.down, norm(layer.post_ff_norm), x);
}

void Decoder::sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) {
  backend_->sample(logits, samples, out);
}

}  // namespace folio
