// The limit of an answer in one message. A unary answer is put together in memory, and its size is the caller's choice
// (max_tokens, n, logprobs; a text to tokenise); streams have chunks instead.
#pragma once
#include <cstddef>
#include <optional>
#include <string>

#include "base/error.h"
#include "folio/v1/generation.pb.h"

namespace folio {

inline constexpr std::size_t kMaxAnswerBytes = 16U << 20U;

inline constexpr const char* kAskForParts = "ask for parts of it";  // advice where the caller chose the input
// kResourceExhausted with the numbers; `advice`: how to ask for less.
std::optional<Error> check_answer_size(std::size_t num_bytes, const std::string& advice);

// An answer's chunks joined to one, as far as it may grow.
class JoinedAnswer {
 public:
  // The reason why not when the whole would be above kMaxAnswerBytes.
  std::optional<Error> add(const v1::GenerateChunk& chunk);
  const v1::GenerateResponse& whole() const { return whole_; }

 private:
  v1::GenerateResponse whole_;
  std::size_t at_most_ = 0;  // bytes of whole_: what the chunks have together is never less than what they have joined
};

}  // namespace folio
