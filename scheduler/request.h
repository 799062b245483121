// What a client asked, as the scheduler sees it. A value; no stream in it: the engine routes commit's events by id.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/params.h"

namespace folio {

struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;  // at least one token
  SamplingParams sampling;
  std::int64_t max_tokens = StoppingParams::kNoLimit;  // >= 0; clipped to the rest of the context on arrival
  std::int32_t n = 1;                                  // sequences
  std::int32_t priority = 0;                           // higher first
  std::string tenant;
  CacheParams cache;
  TimePoint arrival{};
  TimePoint deadline = kNoDeadline;            // ends when it passes
  TimePoint transport_deadline = kNoDeadline;  // ends a predicted step and a little before it passes

  bool wants_scores() const { return sampling.num_prompt_logprobs >= 0; }
};

}  // namespace folio
