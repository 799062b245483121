// What a commit gives back, by request id: the engine routes it to streams. Values.
#pragma once
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/params.h"

namespace folio {

// For a time that never was: below every other one.
inline constexpr Duration kNoDuration{-1};

// A sequence gave a token, ended, or both at once.
struct SequenceEvent {
  RequestId request = 0;
  std::int32_t index = 0;
  std::int32_t sample = -1;  // which of the step's samples; -1: it ended without a new token
  FinishReason finish = FinishReason::kNone;
  Duration ttft = kNoDuration;  // of its request's first token: since the arrival
  Duration gap = kNoDuration;   // of a token that is not its sequence's first: since the one before
};

struct RequestStarted {
  RequestId request = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
};

// Rows of the step's scores that belong to a request, in the order of its positions: each position of a prompt comes
// once, whoever of the request's sequences computed it and however often.
struct PromptScored {
  RequestId request = 0;
  std::int32_t first = 0;  // of the step's scores
  std::int32_t count = 0;
};

// The request is over: all of its sequences ended.
struct RequestSummary {
  RequestId request = 0;
  FinishReason finish = FinishReason::kNone;  // of its sequences' reasons the last in the order of the enumeration
  std::int64_t prompt_tokens = 0;
  std::int64_t cached_tokens = 0;
  std::int64_t output_tokens = 0;
  std::int64_t pinned_tokens = 0;
  std::int64_t recomputed_tokens = 0;
  std::int32_t num_chunks = 0;  // slices with prompt tokens that were not computed before
  std::int32_t num_preemptions = 0;
  std::int32_t peak_blocks = 0;
  TimePoint arrival{};
  TimePoint first_scheduled{};  // epoch of the clock: never
  TimePoint first_token{};      // likewise
  TimePoint end{};
};

// In this order: `started`, `scored`, then the sequences' events, then `ended`.
struct Events {
  std::vector<RequestStarted> started;
  std::vector<PromptScored> scored;
  std::vector<SequenceEvent> sequences;
  std::vector<RequestSummary> ended;

  bool empty() const { return started.empty() && scored.empty() && sequences.empty() && ended.empty(); }
  void clear() {
    started.clear();
    scored.clear();
    sequences.clear();
    ended.clear();
  }
};

}  // namespace folio
