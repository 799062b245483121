// What a step does, decided on the host: prefill, a chunk of it and decode are slices with different counts.
#pragma once
#include <cstdint>
#include <vector>

#include "scheduler/sequence.h"

namespace folio {

// One sequence's share of a step: its positions [first, first + count).
struct Slice {
  Sequence* sequence = nullptr;  // alive until the step was committed, ended or not
  std::int64_t first = 0;
  std::int32_t count = 0;
  std::int32_t num_logits = 0;  // 1: the slice reaches the last known token, and the next one is sampled; else 0
  // The one token of this slice is sample `in_flight_row` of the step before, which was not committed when this plan
  // was made (depth 2 only); -1: all tokens are in the sequence.
  std::int32_t in_flight_row = -1;
  std::uint64_t epoch = 0;  // of the sequence, when planned
};

struct StepPlan {
  std::int64_t step = 0;      // 1, 2, 3 ... of plans with slices
  std::vector<Slice> slices;  // running outputs first, then chunks
  std::int32_t num_tokens = 0;
  std::int32_t num_samples = 0;  // slices with num_logits, in their order

  void clear() {
    slices.clear();
    num_tokens = num_samples = 0;
  }
};

}  // namespace folio
