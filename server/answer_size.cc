#include "server/answer_size.h"

#include "server/chunk_renderer.h"

namespace folio {

std::optional<Error> check_answer_size(std::size_t num_bytes, const std::string& advice) {
  if (num_bytes <= kMaxAnswerBytes) return std::nullopt;
  return Error{ErrorCode::kResourceExhausted, "the answer is above the limit of " + std::to_string(kMaxAnswerBytes) +
                                                  " bytes for one message: " + advice};
}

std::optional<Error> JoinedAnswer::add(const v1::GenerateChunk& chunk) {
  join_chunk(chunk, whole_);
  at_most_ += chunk.ByteSizeLong();
  if (at_most_ <= kMaxAnswerBytes) return std::nullopt;
  at_most_ = whole_.ByteSizeLong();  // exact, and rare: each time at least half of the room before was used up
  return check_answer_size(at_most_, "stream it, or ask for less (max_tokens, n, logprobs)");
}

}  // namespace folio
