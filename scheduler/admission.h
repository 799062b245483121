// What can never be served, or not now, is refused on arrival, with the numbers. Pure functions: any thread.
#pragma once
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/error.h"

namespace folio {

struct SchedulerLimits {
  std::int32_t block_size = 16;
  std::int32_t num_blocks = 0;
  std::int32_t max_context = 0;             // prompt and output tokens of a sequence
  std::int32_t max_num_seqs = 64;           // sequences that hold blocks at a time; never more than max_batch_tokens do
  std::int32_t max_batch_tokens = 512;      // token budget of a step
  std::int32_t max_prefill_chunk = 0;       // most tokens of one sequence in a step; 0: no cap but the budget
  std::int32_t max_queue = 1024;            // requests of which nothing was started yet
  std::int64_t max_queue_tokens = 1 << 22;  // their prompt tokens
  bool prefix_cache = true;
  std::int32_t max_pinned_blocks = 0;
  Duration target_itl{};  // of running outputs; zero: no target
};

struct QueueLoad {
  std::int32_t requests = 0;
  std::int64_t prompt_tokens = 0;
};

// kInvalidArgument: the prompt and one token more (unless max_tokens is 0) over the context or the pool, n over
// max_num_seqs, no prompt.
// kResourceExhausted: the queue is full. Nothing: it can be taken.
std::optional<Error> refusal(const SchedulerLimits& limits, const QueueLoad& queue, std::int64_t num_prompt_tokens,
                             std::int64_t max_tokens, std::int32_t n);

// max_tokens within the rest of the context. REQUIRES a prompt that was not refused.
std::int64_t clipped_max_tokens(const SchedulerLimits& limits, std::int64_t num_prompt_tokens, std::int64_t max_tokens);

}  // namespace folio
