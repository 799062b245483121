#include "bench/pass_cost.h"

#include <algorithm>

namespace folio::bench {
namespace {

// Keys that the rows see, summed: row p sees min(p + 1, window).
double pairs(std::int64_t first, std::int64_t count, std::int64_t window) {
  const auto sum_to = [window](std::int64_t rows) {
    const std::int64_t growing = window > 0 ? std::min(rows, window) : rows;
    return static_cast<double>(growing) * static_cast<double>(growing + 1) / 2 +
           static_cast<double>(rows - growing) * static_cast<double>(window);
  };
  return sum_to(first + count) - sum_to(first);
}

// Positions whose K and V some row of the pass sees.
double keys_read(std::int64_t first, std::int64_t count, std::int64_t window) {
  const std::int64_t oldest = window > 0 ? std::max<std::int64_t>(0, first + 1 - window) : 0;
  return static_cast<double>(first + count - oldest);
}

}  // namespace

PassCosts::PassCosts(const GgufFile& file, const ModelInfo& info) : config_(read_config(file)) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name.starts_with("blk.")) layer_bytes_ += static_cast<double>(tensor.data.size());
  }
  const GgufTensor* output = file.find_tensor("output.weight");
  output_bytes_ = static_cast<double>((output ? *output : file.get_tensor("token_embd.weight")).data.size());
  kv_bytes_per_layer_ = static_cast<double>(info.kv_bytes_per_token) / static_cast<double>(config_.num_layers);
}

PassCost PassCosts::pass(std::int64_t first, std::int64_t count, std::int64_t num_sequences) const {
  const auto rows = static_cast<double>(count), sequences = static_cast<double>(num_sequences);
  const auto hidden = static_cast<double>(config_.hidden_size), layers = static_cast<double>(config_.num_layers);
  const AttentionShape& heads = config_.attention;
  const auto q_size = static_cast<double>(heads.num_heads) * heads.head_dim;
  const auto kv_size = static_cast<double>(heads.num_kv_heads) * heads.head_dim;
  const double layer_weights = hidden * (2 * q_size + 2 * kv_size + 3.0 * config_.ff_size);
  PassCost cost;
  cost.matrix_ops = 2 * sequences * (rows * layers * layer_weights + hidden * config_.vocab_size);
  cost.weight_bytes = weight_bytes();
  for (const std::int32_t kind : config_.layer_attention) {
    const std::int64_t window = config_.attentions[static_cast<std::size_t>(kind)].window;
    cost.attention_ops += 4 * q_size * sequences * pairs(first, count, window);  // scores, and the sum of values
    cost.kv_bytes += kv_bytes_per_layer_ * sequences * (keys_read(first, count, window) + rows);
  }
  return cost;
}

Roofline::Roofline(const MachinePeaks& peaks, bool integer_weights)
    : matrix_ops_(integer_weights && peaks.int8 > 0 ? peaks.int8 : peaks.f32),
      attention_ops_(std::max(peaks.f32, peaks.bf16)),
      read_bytes_(peaks.read_bytes) {}

double Roofline::compute_s(const PassCost& cost) const {
  return cost.matrix_ops / matrix_ops_ + cost.attention_ops / attention_ops_;
}

}  // namespace folio::bench
