#include "tests/engine/model/naive_decoder.h"

#include <cmath>
#include <random>

#include "tests/support/gguf_writer.h"

namespace folio {
namespace {

using Row = std::vector<double>;

Row values(const GgufTensor& tensor) {
  std::size_t count = 1;
  for (const auto n : tensor.shape) count *= n;
  std::vector<float> floats(count);
  dequantize(tensor.type, tensor.data, floats);
  return {floats.begin(), floats.end()};
}

struct Twin {
  const GgufFile& file;
  std::string arch = std::string(file.get_string("general.architecture"));
  int hidden = number("embedding_length"), heads = number("attention.head_count");
  int kv_heads =
      static_cast<int>(file.find_uint(arch + ".attention.head_count_kv").value_or(static_cast<std::uint64_t>(heads)));
  int dim = static_cast<int>(
      file.find_uint(arch + ".attention.key_length").value_or(static_cast<std::uint64_t>(hidden / heads)));
  int rotary =
      static_cast<int>(file.find_uint(arch + ".rope.dimension_count").value_or(static_cast<std::uint64_t>(dim)));
  double epsilon = file.get_float(arch + ".attention.layer_norm_rms_epsilon");
  bool gemma = arch == "gemma3";

  int number(const std::string& key) const { return static_cast<int>(file.get_uint(arch + "." + key)); }

  Row norm(const Row& x, const std::string& name) const {
    const Row w = values(file.get_tensor(name));
    double squares = 0;
    for (const double v : x) squares += v * v;
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * w[i];
    return y;
  }

  Row multiply(const std::string& name, const Row& x, const std::string& bias = "") const {
    const Row w = values(file.get_tensor(name));
    Row y(w.size() / x.size());
    if (!bias.empty() && file.find_tensor(bias) != nullptr) y = values(file.get_tensor(bias));
    for (std::size_t r = 0; r < y.size(); ++r) {
      for (std::size_t k = 0; k < x.size(); ++k) y[r] += w[r * x.size() + k] * x[k];
    }
    return y;
  }

  bool is_local(int layer) const {
    if (!gemma || file.find_uint("gemma3.attention.sliding_window").value_or(0) == 0) return false;
    return (layer + 1) % static_cast<int>(file.find_uint("gemma3.attention.sliding_window_pattern").value_or(6)) != 0;
  }

  // One head at one position, in place.
  void rotate(double* head, int position, bool local) const {
    double base = file.find_float(arch + ".rope.freq_base").value_or(10000.0);
    double scale = file.find_float(arch + ".rope.scaling.factor").value_or(1.0);
    if (local) base = 10000.0, scale = 1.0;
    for (int i = 0; i < rotary / 2; ++i) {
      const double angle = position * std::pow(base, -2.0 * i / rotary) / scale;
      double& a = head[arch == "llama" ? 2 * i : i];
      double& b = head[arch == "llama" ? 2 * i + 1 : i + rotary / 2];
      const double a0 = a;
      a = a0 * std::cos(angle) - b * std::sin(angle);
      b = a0 * std::sin(angle) + b * std::cos(angle);
    }
  }

  Row attend(const std::vector<Row>& q, const std::vector<Row>& k, const std::vector<Row>& v, std::size_t position,
             int window) const {
    Row out(static_cast<std::size_t>(heads * dim));
    for (int h = 0; h < heads; ++h) {
      const auto kv_at = static_cast<std::size_t>(h / (heads / kv_heads) * dim);
      const auto q_at = static_cast<std::size_t>(h * dim);
      const std::size_t first = window > 0 && position + 1 > static_cast<std::size_t>(window)
                                    ? position + 1 - static_cast<std::size_t>(window)
                                    : 0;
      Row weights;
      double total = 0;
      for (std::size_t t = first; t <= position; ++t) {
        double score = 0;
        for (int d = 0; d < dim; ++d)
          score += q[position][q_at + static_cast<std::size_t>(d)] * k[t][kv_at + static_cast<std::size_t>(d)];
        weights.push_back(std::exp(score / std::sqrt(dim)));
        total += weights.back();
      }
      for (std::size_t t = first; t <= position; ++t) {
        for (int d = 0; d < dim; ++d) {
          out[q_at + static_cast<std::size_t>(d)] +=
              weights[t - first] / total * v[t][kv_at + static_cast<std::size_t>(d)];
        }
      }
    }
    return out;
  }

  void norm_heads(Row& x, int count, const std::string& name) const {
    if (file.find_tensor(name) == nullptr) return;
    for (int h = 0; h < count; ++h) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(h) * dim;
      const Row normed = norm(Row(begin, begin + dim), name);
      std::copy(normed.begin(), normed.end(), begin);
    }
  }

  void layer(std::vector<Row>& x, int index) const {
    const std::string p = "blk." + std::to_string(index) + ".";
    const bool local = is_local(index);
    const int window = local ? number("attention.sliding_window") : 0;
    std::vector<Row> q;
    std::vector<Row> k;
    std::vector<Row> v;
    for (std::size_t t = 0; t < x.size(); ++t) {
      const Row h = norm(x[t], p + "attn_norm.weight");
      q.push_back(multiply(p + "attn_q.weight", h, p + "attn_q.bias"));
      k.push_back(multiply(p + "attn_k.weight", h, p + "attn_k.bias"));
      v.push_back(multiply(p + "attn_v.weight", h, p + "attn_v.bias"));
      norm_heads(q[t], heads, p + "attn_q_norm.weight");
      norm_heads(k[t], kv_heads, p + "attn_k_norm.weight");
      for (int i = 0; i < heads; ++i)
        rotate(q[t].data() + static_cast<std::ptrdiff_t>(i) * dim, static_cast<int>(t), local);
      for (int i = 0; i < kv_heads; ++i)
        rotate(k[t].data() + static_cast<std::ptrdiff_t>(i) * dim, static_cast<int>(t), local);
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      Row o = multiply(p + "attn_output.weight", attend(q, k, v, t, window));
      if (gemma) o = norm(o, p + "post_attention_norm.weight");
      for (std::size_t i = 0; i < o.size(); ++i) x[t][i] += o[i];
    }
    for (Row& row : x) {
      const Row h = norm(row, p + "ffn_norm.weight");
      Row g = multiply(p + "ffn_gate.weight", h);
      const Row u = multiply(p + "ffn_up.weight", h);
      for (std::size_t i = 0; i < g.size(); ++i) {
        const double a = g[i];
        const double act = gemma ? 0.5 * a * (1 + std::tanh(std::sqrt(2 / M_PI) * (a + 0.044715 * a * a * a)))
                                 : a / (1 + std::exp(-a));
        g[i] = act * u[i];
      }
      Row o = multiply(p + "ffn_down.weight", g);
      if (gemma) o = norm(o, p + "post_ffw_norm.weight");
      for (std::size_t i = 0; i < o.size(); ++i) row[i] += o[i];
    }
  }
};

std::string encode(const std::vector<float>& x, TensorType type) {
  std::string bytes;
  for (const float v : x) {
    if (type == TensorType::kF32) bytes += testing::raw(v);
    if (type == TensorType::kF16) bytes += testing::raw(float_to_half(v));
    if (type == TensorType::kBF16)
      bytes += testing::raw(static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, v) >> 16U));
  }
  return bytes;
}

}  // namespace

std::vector<std::vector<double>> naive_logits(const GgufFile& file, const std::vector<TokenId>& tokens) {
  const Twin twin{file};
  const Row table = values(file.get_tensor("token_embd.weight"));
  const auto hidden = static_cast<std::size_t>(twin.hidden);
  std::vector<Row> x;
  for (const TokenId token : tokens) {
    const auto begin = table.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(token) * hidden);
    x.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(hidden));
    if (twin.gemma) {
      for (double& v : x.back()) v *= std::sqrt(static_cast<double>(hidden));
    }
  }
  for (int i = 0; i < twin.number("block_count"); ++i) twin.layer(x, i);
  for (Row& row : x) {
    row = twin.multiply(file.find_tensor("output.weight") != nullptr ? "output.weight" : "token_embd.weight",
                        twin.norm(row, "output_norm.weight"));
  }
  return x;
}

std::string random_model_bytes(const RandomModel& m, unsigned seed) {
  testing::GgufWriter writer;
  std::mt19937 random(seed);
  const std::string p = m.architecture + ".";
  const auto number = [&](const std::string& key, int value) {
    writer.add_uint32(p + key, static_cast<std::uint32_t>(value));
  };
  writer.add_string("general.architecture", m.architecture);
  number("block_count", m.layers);
  number("embedding_length", m.hidden);
  number("feed_forward_length", m.ff);
  number("context_length", m.context);
  number("attention.head_count", m.heads);
  number("attention.head_count_kv", m.kv_heads);
  if (m.say_head_dim) number("attention.key_length", m.head_dim), number("attention.value_length", m.head_dim);
  if (m.rotary_dim > 0) number("rope.dimension_count", m.rotary_dim);
  if (m.freq_base > 0) writer.add_float32(p + "rope.freq_base", m.freq_base);
  if (m.linear_scale > 0) {
    if (m.say_scaling_type) writer.add_string(p + "rope.scaling.type", "linear");
    writer.add_float32(p + "rope.scaling.factor", m.linear_scale);
  }
  if (m.window > 0) number("attention.sliding_window", m.window);
  if (m.pattern > 0) number("attention.sliding_window_pattern", m.pattern);
  writer.add_float32(p + "attention.layer_norm_rms_epsilon", 1e-5F);

  const auto matrix = [&](const std::string& name, int depth, int columns, float gain = 1.0F) {
    std::normal_distribution<float> normal(0.0F, gain / std::sqrt(static_cast<float>(depth)));
    std::vector<float> w(static_cast<std::size_t>(depth * columns));
    for (float& v : w) v = normal(random);
    writer.add_tensor(name, {static_cast<std::uint64_t>(depth), static_cast<std::uint64_t>(columns)}, m.weights,
                      encode(w, m.weights));
  };
  const auto vector = [&](const std::string& name, int size, float mean) {
    std::normal_distribution<float> normal(mean, 0.3F);
    std::vector<float> w(static_cast<std::size_t>(size));
    for (float& v : w) v = normal(random);
    writer.add_f32_tensor(name, {static_cast<std::uint64_t>(size)}, w);
  };
  const bool qk_norms = m.architecture == "qwen3" || m.architecture == "gemma3";
  matrix("token_embd.weight", m.hidden, m.vocab, m.architecture == "gemma3" ? 0.2F : 1.0F);
  if (m.own_output) matrix("output.weight", m.hidden, m.vocab);
  vector("output_norm.weight", m.hidden, 1.0F);
  for (int i = 0; i < m.layers; ++i) {
    const std::string b = "blk." + std::to_string(i) + ".";
    vector(b + "attn_norm.weight", m.hidden, 1.0F);
    matrix(b + "attn_q.weight", m.hidden, m.heads * m.head_dim, 1.5F);  // scores that tell positions apart
    matrix(b + "attn_k.weight", m.hidden, m.kv_heads * m.head_dim, 1.5F);
    matrix(b + "attn_v.weight", m.hidden, m.kv_heads * m.head_dim);
    if (m.biases) {
      vector(b + "attn_q.bias", m.heads * m.head_dim, 0.1F);
      vector(b + "attn_k.bias", m.kv_heads * m.head_dim, 0.1F);
      vector(b + "attn_v.bias", m.kv_heads * m.head_dim, 0.1F);
    }
    if (qk_norms)
      vector(b + "attn_q_norm.weight", m.head_dim, 1.0F), vector(b + "attn_k_norm.weight", m.head_dim, 1.0F);
    matrix(b + "attn_output.weight", m.heads * m.head_dim, m.hidden);
    vector(b + "ffn_norm.weight", m.hidden, 1.0F);
    matrix(b + "ffn_gate.weight", m.hidden, m.ff);
    matrix(b + "ffn_up.weight", m.hidden, m.ff);
    matrix(b + "ffn_down.weight", m.ff, m.hidden);
    if (m.architecture == "gemma3") {
      vector(b + "post_attention_norm.weight", m.hidden, 1.0F);
      vector(b + "post_ffw_norm.weight", m.hidden, 1.0F);
    }
  }
  return writer.bytes();
}

}  // namespace folio
