#include "scheduler/admission.h"

#include <algorithm>
#include <string>

namespace folio {
namespace {

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

std::string tokens(std::int64_t n) {
  return std::to_string(n) + (n == 1 ? " token" : " tokens");
}

}  // namespace

std::optional<Error> refusal(const SchedulerLimits& limits, const QueueLoad& queue, std::int64_t num_prompt_tokens,
                             std::int64_t max_tokens, std::int32_t n) {
  const std::int64_t pool_tokens = static_cast<std::int64_t>(limits.num_blocks) * limits.block_size;
  if (num_prompt_tokens < 1) return invalid("prompt: it has no tokens");
  if (max_tokens < 0) return invalid("max_tokens: " + std::to_string(max_tokens) + " is less than 0");
  if (n < 1) return invalid("n: " + std::to_string(n) + " is less than 1");
  if (n > limits.max_num_seqs) {
    return invalid("n: " + std::to_string(n) + " is over the limit of " + std::to_string(limits.max_num_seqs) +
                   " sequences (max_num_seqs)");
  }
  const std::int64_t least = num_prompt_tokens + (max_tokens > 0 ? 1 : 0);
  const std::string what = "prompt: " + tokens(num_prompt_tokens) + (max_tokens > 0 ? " and one to be made" : "");
  if (least > limits.max_context) {
    Error error = invalid(what + " are over the context of " + tokens(limits.max_context));
    error.over_context = true;
    return error;
  }
  if (least > pool_tokens) {
    return invalid(what + " are over the KV memory of " + tokens(pool_tokens) + " (" +
                   std::to_string(limits.num_blocks) + " blocks of " + std::to_string(limits.block_size) + ")");
  }
  if (queue.requests >= limits.max_queue) {
    return Error{ErrorCode::kResourceExhausted, "queue full: " + std::to_string(queue.requests) +
                                                    " requests wait, the limit is " + std::to_string(limits.max_queue)};
  }
  if (queue.prompt_tokens > 0 && queue.prompt_tokens + num_prompt_tokens > limits.max_queue_tokens) {
    return Error{ErrorCode::kResourceExhausted, "queue full: " + tokens(queue.prompt_tokens) +
                                                    " wait, with this prompt's " + std::to_string(num_prompt_tokens) +
                                                    " that is over the limit of " +
                                                    std::to_string(limits.max_queue_tokens)};
  }
  return std::nullopt;
}

std::int64_t clipped_max_tokens(const SchedulerLimits& limits, std::int64_t num_prompt_tokens,
                                std::int64_t max_tokens) {
  return std::min<std::int64_t>(max_tokens, limits.max_context - num_prompt_tokens);
}

}  // namespace folio
