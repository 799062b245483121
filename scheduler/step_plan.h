// What a step does, decided on the host: prefill, a chunk of it and decode are slices with different counts.
// Made by the scheduler; read on its thread.
#pragma once
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "scheduler/sequence.h"

namespace folio {

// One sequence's share of a step: its positions [first, first + count).
struct Slice {
  Sequence* sequence = nullptr;  // alive until the step was committed, ended or not
  std::int64_t first = 0;
  std::int32_t count = 0;
  std::int32_t num_logits = 0;  // 1: the slice reaches the last known token, and what follows it is sampled; else 0
  // The one token of this slice is sample `in_flight_row` of the step before, which was not committed when this plan
  // was made (depth 2 only); -1: all tokens are in the sequence.
  std::int32_t in_flight_row = -1;
  std::uint64_t epoch = 0;  // of the sequence, when planned
  // Positions [first_scored, first_scored + num_scored) of the slice: the log probability of the prompt's token behind
  // each is asked for, and no plan before asked for it.
  std::int64_t first_scored = 0;
  std::int32_t num_scored = 0;
};

// The next token of a sequence, from the logits of a slice: its own, or that of the sibling that it was forked from in
// this plan.
struct PlannedSample {
  Sequence* sequence = nullptr;  // as a slice's
  std::int32_t slice = 0;
  std::uint64_t epoch = 0;
};

// Done in this order before anything of the step is written. The source is held until the step was committed.
struct PlannedCopy {
  BlockId from = 0;
  BlockId to = 0;
};

struct StepPlan {
  std::int64_t step = 0;               // 1, 2, 3 ... of plans with slices
  std::vector<Slice> slices;           // running outputs first, then chunks
  std::vector<PlannedSample> samples;  // in the order of their slices
  std::vector<PlannedCopy> copies;
  std::int32_t num_tokens = 0;

  std::int32_t num_samples() const { return static_cast<std::int32_t>(samples.size()); }
  void clear() {
    slices.clear();
    samples.clear();
    copies.clear();
    num_tokens = 0;
  }
};

}  // namespace folio
