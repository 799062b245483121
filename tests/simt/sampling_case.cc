#include "tests/simt/sampling_case.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tests/simt/either_buffer.h"

namespace folio::cuda {

std::int32_t sample_plainly(const SampleRow& params, std::span<const float> logits) {
  const std::int32_t best = row_argmax(logits);
  const float max = row_max(logits);
  if (best < 0 || params.temperature == 0.0F || max == kInfinity) return best;
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > -kInfinity) ids.push_back(static_cast<std::int32_t>(i));
  }
  const auto at = [&](std::int32_t id) { return logits[static_cast<std::size_t>(id)]; };
  std::stable_sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) { return at(a) > at(b); });
  if (params.top_k > 0) ids.resize(std::min(ids.size(), static_cast<std::size_t>(params.top_k)));
  const auto weight = [&](std::int32_t id) { return fixed_weight(at(id), max, params.temperature, params.min_p); };
  const auto total = [&] {
    std::uint64_t sum = 0;
    for (const std::int32_t id : ids) sum += weight(id);
    return sum;
  };
  if (params.top_p < 1.0F) {
    const std::uint64_t goal = head_goal(params.top_p, total());
    std::uint64_t sum = 0;
    std::size_t kept = 0;
    while (sum < goal) sum += weight(ids[kept++]);
    ids.resize(kept);
  }
  std::sort(ids.begin(), ids.end());
  const std::uint64_t goal = draw_goal(params.uniform, total());
  std::uint64_t sum = 0;
  for (const std::int32_t id : ids) {
    sum += weight(id);
    if (sum >= goal) return id;
  }
  return -1;
}

std::vector<std::int32_t> sample_on_device(const SamplingCase& work, const std::vector<SampleRow>& rows) {
  const std::size_t vocab = work.logits.front().size();
  std::vector<float> all;
  for (const std::vector<float>& row : work.logits) all.insert(all.end(), row.begin(), row.end());
  const DeviceBuffer<float> logits(all);
  const DeviceBuffer<SampleRow> device_rows(rows);
  const auto num_rows = static_cast<std::int32_t>(rows.size());
  const auto vocab_size = static_cast<std::int32_t>(vocab);
  DeviceBuffer<std::byte> workspace(sample_workspace_bytes(num_rows, vocab_size));
  DeviceBuffer<std::int32_t> ids(rows.size());
  sample_rows({logits.data(), vocab_size, device_rows.data(), workspace.data(), ids.data()}, num_rows, nullptr);
  return ids.to_vector();
}

SampleRequest request_of(const SamplingCase& work, std::size_t row, std::int64_t position) {
  SampleRequest request;
  request.logit_row = static_cast<std::int32_t>(row);
  request.params = &work.params[row];
  request.sequence_index = static_cast<std::int32_t>(row % 3);
  request.position = position;
  return request;
}

SamplingParams random_params(std::mt19937& random) {
  SamplingParams params;
  const float temperatures[] = {1.0F, 0.7F, 0.1F, 2.0F, 10.0F, 1e-20F, 0.0F, 3.0e38F};
  params.temperature = temperatures[random() % (random() % 2 == 0 ? 4 : 8)];
  if (random() % 2 == 0) params.top_k = static_cast<std::int32_t>(1 + random() % (1U << (random() % 13U)));
  if (random() % 2 == 0) params.top_p = static_cast<float>(1 + random() % 1000) / 1000.0F;
  if (random() % 3 == 0) params.min_p = static_cast<float>(random() % 100) / (random() % 2 == 0 ? 100.0F : 10000.0F);
  params.seed = random();
  return params;
}

std::vector<float> random_logits(std::mt19937& random, std::size_t vocab) {
  std::normal_distribution<float> normal;
  const float spreads[] = {3.0F, 0.01F, 30.0F, 3.0F};
  const float spread = spreads[random() % 4];
  const auto kind = random() % 6;
  std::vector<float> logits(vocab);
  for (float& logit : logits) {
    logit = spread * normal(random);
    if (kind == 1) logit = std::round(logit);  // many equals
    if (kind == 2 && random() % 3 == 0) logit = -kInfinity;
    if (kind == 3 && random() % 50 == 0) logit = std::bit_cast<float>(random() % 2 == 0 ? 0x7fc00000U : 0xffc00000U);
    if (kind == 4 && random() % 3 == 0) logit = random() % 2 == 0 ? 0.0F : -0.0F;
  }
  return logits;
}

}  // namespace folio::cuda
