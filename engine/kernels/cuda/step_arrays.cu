#include "engine/kernels/cuda/step_arrays.h"

#include <algorithm>

#include "base/check.h"

namespace folio::cuda {
namespace {

constexpr std::size_t kAlignment = 16;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// `count` elements, the first of them from `values`, the others `filler`.
template <class T>
void write(std::span<const T> values, std::int32_t count, const T& filler, std::byte* to) {
  FOLIO_CHECK(values.size() <= static_cast<std::size_t>(count), "a step fits into its shape");
  T* out = reinterpret_cast<T*>(to);
  std::copy(values.begin(), values.end(), out);
  std::fill(out + values.size(), out + count, filler);
}

}  // namespace

StepLayout::StepLayout(const StepShape& shape) {
  std::size_t end = 0;
  const auto take = [&end](std::size_t bytes) {
    const std::size_t begin = end;
    end += aligned(bytes);
    return begin;
  };
  const auto ints = [&take](std::int32_t count) {
    return take(static_cast<std::size_t>(count) * sizeof(std::int32_t));
  };
  samples = take(static_cast<std::size_t>(shape.samples) * sizeof(SampleRow));
  tokens = ints(shape.tokens);
  positions = ints(shape.tokens);
  slots = ints(shape.tokens);
  logit_rows = ints(shape.logit_rows);
  score_rows = ints(shape.score_rows);
  for (const AttentionExtent& extent : shape.plans) {
    plans.push_back(take(AttentionPlanLayout(extent).size * sizeof(std::int32_t)));
  }
  block_ids = end;
}

std::size_t StepLayout::copies(const StepBatch& batch) const {
  return block_ids + aligned(batch.block_ids.size() * sizeof(BlockId));
}

std::size_t StepLayout::bytes(const StepBatch& batch) const {
  return copies(batch) + batch.copies.size() * sizeof(int2);
}

std::size_t largest_step_bytes(const StepShape& shape, std::int64_t num_block_ids, std::int64_t num_copies) {
  return StepLayout(shape).block_ids + aligned(static_cast<std::size_t>(num_block_ids) * sizeof(BlockId)) +
         static_cast<std::size_t>(num_copies) * sizeof(int2);
}

void write_step(const StepBatch& batch, std::span<const AttentionPlan> plans, std::span<const SampleRow> samples,
                const StepShape& shape, const StepLayout& layout, std::byte* to) {
  write<SampleRow>(samples, shape.samples, {}, to + layout.samples);
  write<std::int32_t>(batch.tokens, shape.tokens, 0, to + layout.tokens);
  write<std::int32_t>(batch.positions, shape.tokens, 0, to + layout.positions);
  write<std::int32_t>(batch.slots, shape.tokens, -1, to + layout.slots);  // nothing is written to the cache
  write<std::int32_t>(batch.logit_rows, shape.logit_rows, 0, to + layout.logit_rows);
  auto* score_rows = reinterpret_cast<std::int32_t*>(to + layout.score_rows);
  for (const ScoreRequest& score : batch.scores) *score_rows++ = score.row;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    auto* flat = reinterpret_cast<std::int32_t*>(to + layout.plans[i]);
    flatten(plans[i], shape.plans[i], {flat, AttentionPlanLayout(shape.plans[i]).size});
  }
  std::copy(batch.block_ids.begin(), batch.block_ids.end(), reinterpret_cast<BlockId*>(to + layout.block_ids));
  auto* copies = reinterpret_cast<int2*>(to + layout.copies(batch));
  for (const BlockCopy& copy : batch.copies) *copies++ = {copy.from, copy.to};
}

}  // namespace folio::cuda
