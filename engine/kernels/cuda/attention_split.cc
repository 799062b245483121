#include "engine/kernels/cuda/attention_split.h"

#include <algorithm>

namespace folio::cuda {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t count_parts(std::span<const std::int32_t> lengths, std::int32_t keys) {
  std::int64_t parts = 0;
  for (const std::int32_t length : lengths) parts += (length + keys - 1) / keys;
  return parts;
}

}  // namespace

std::int32_t choose_part_keys(std::span<const std::int32_t> lengths, const SplitCosts& costs) {
  if (lengths.empty()) return costs.min_keys;
  const std::int32_t longest = std::max(1, *std::max_element(lengths.begin(), lengths.end()));
  std::int64_t all_keys = 0;
  for (const std::int32_t length : lengths) all_keys += length;
  std::int32_t best = longest;
  std::int64_t best_time = -1;
  const auto consider = [&](std::int64_t keys) {
    keys = std::max<std::int64_t>(costs.min_keys, ceil_div(keys, costs.key_tile) * costs.key_tile);
    keys = std::min<std::int64_t>(longest, keys);
    const std::int64_t parts = count_parts(lengths, static_cast<std::int32_t>(keys));
    if (keys < longest && parts > costs.most_parts) return;
    const std::int64_t part_time = keys + costs.part_cost;
    const std::int64_t time = std::min(ceil_div(parts, costs.machine) * part_time,
                                       (all_keys + parts * costs.part_cost) / costs.machine + part_time) +
                              (keys < longest ? costs.merge_cost : 0);
    if (best_time >= 0 && time >= best_time) return;
    best = static_cast<std::int32_t>(keys);
    best_time = time;
  };
  for (std::int64_t parts = 1; parts <= 2 * costs.machine; parts += std::max<std::int64_t>(1, parts / 4)) {
    consider(ceil_div(longest, parts));
  }
  for (std::int64_t waves = 1; waves <= 4; ++waves) {  // as long as just fills the waves, if all were equal
    consider(ceil_div(all_keys, waves * costs.machine));
  }
  return best;
}

}  // namespace folio::cuda
