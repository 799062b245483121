// A step as the kernels read it: one array that one copy takes to the device. Plain host code; where things lie depends
// on the shape alone, so that a captured graph finds them again in every step of its shape.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/cuda/attention_plan.h"
#include "engine/kernels/cuda/sampling.h"
#include "engine/kernels/step_batch.h"

namespace folio::cuda {

// How much there is of everything, or how much there is room for: a decode step runs in the graph of the next larger
// shape, and what is missing is filled so that it does nothing.
struct StepShape {
  std::int32_t tokens = 0;
  std::int32_t logit_rows = 0;
  std::int32_t score_rows = 0;
  std::int32_t samples = 0;
  std::vector<AttentionExtent> plans;  // one a window
};

// In bytes, each at a multiple of 16.
struct StepLayout {
  explicit StepLayout(const StepShape& shape);

  std::size_t samples = 0;     // SampleRow [samples]
  std::size_t tokens = 0;      // [tokens]
  std::size_t positions = 0;   // [tokens]
  std::size_t slots = 0;       // [tokens]
  std::size_t logit_rows = 0;  // [logit_rows]
  std::size_t score_rows = 0;  // [score_rows]
  std::vector<std::size_t> plans;
  std::size_t block_ids = 0;  // as long as they are; behind them the copies

  std::size_t copies(const StepBatch& batch) const;  // int2 {from, to} [copies]
  std::size_t bytes(const StepBatch& batch) const;   // of all
};

// In bytes: no step of at most so many blocks and copies is larger.
std::size_t largest_step_bytes(const StepShape& shape, std::int64_t num_block_ids, std::int64_t num_copies);

// `shape` has room for all of the batch and its plans; `to` has layout.bytes(batch). `samples` [batch.samples.size()].
void write_step(const StepBatch& batch, std::span<const AttentionPlan> plans, std::span<const SampleRow> samples,
                const StepShape& shape, const StepLayout& layout, std::byte* to);

}  // namespace folio::cuda
