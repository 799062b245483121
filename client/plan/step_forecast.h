// What users of a running server may expect, from the step times that it learnt and by the rules of its scheduler
// (docs/architecture.md, "Who runs next"): a forecast of full steps, without queues, preemption and the network.
#pragma once
#include <cstdint>
#include <optional>

#include "folio/v1/control.pb.h"

namespace folio::client {

struct StepLimits {
  std::int64_t max_batch_tokens = 512;
  std::int64_t max_num_seqs = 64;
  double target_itl_ms = 0;  // 0: no target
};

struct ForecastOf {
  std::int64_t users = 1;  // answering at once; more than may run wait for one to end
  std::int64_t context = 1;
  std::int64_t prompt_tokens = 1;  // of a newcomer, the last of these users
  std::int64_t cached_tokens = 0;  // of its prompt
};

struct Forecast {
  std::int64_t running = 1;  // users at once
  double itl_ms = 0;         // between two tokens, when all contexts are full
  double ttft_ms = 0;        // of the newcomer, beside the others' answers with their contexts full
  std::int64_t chunk = 0;    // prompt tokens in its first step
  std::int64_t steps = 0;    // until its first token
  bool is_seen = true;       // no step of it has more tokens than the server's model is trusted for
};

// A step of so many rows, keys seen by them, tokens of contexts and rows of logits.
double step_ms(const v1::StepTimes& times, double rows, double pairs, double keys, double logit_rows);

// None: the server has seen too few steps.
std::optional<Forecast> forecast(const v1::StepTimes& times, const StepLimits& limits, const ForecastOf& of);

}  // namespace folio::client
