// Decides, token by token, whether a sequence ends and which bytes may leave. Owned by the engine, one per sequence,
// called on the engine thread only. The earliest end wins, then the longest stop string. Bytes that may be the
// beginning of a stop string are held, and released once when they cannot be any more or the sequence ends without it.
//
// min_tokens: the first min_tokens tokens end nothing. End ids among them are ordinary tokens (the sampler is told not
// to give them: masked()), and a stop string whose last byte is in one of them is not a stop. One that begins in them
// and ends later is.
//
// Cost: each byte of output is compared with each stop string a constant number of times, amortised (Knuth, Morris,
// Pratt 1977: one automaton a string), whatever the strings and the text are; memory is 4 bytes per stop byte.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/params.h"
#include "engine/text/tokenizer.h"

namespace folio {

struct StopVerdict {
  FinishReason finish = FinishReason::kNone;
  TokenId stop_token = -1;       // set with kStopToken
  std::int32_t stop_index = -1;  // index into StoppingParams::stop, set with kStopString
};

class StopChecker {
 public:
  // `tokenizer` and `params` outlive the checker. max_tokens is already clipped to the context by the scheduler.
  // skip_special: control and unknown tokens add no bytes to the text (else their spelling).
  StopChecker(const Tokenizer& tokenizer, const StoppingParams& params, bool skip_special);

  // One more output token, in order. Appends to `released` the output bytes that became certain. An end token adds no
  // bytes; the text of a stop string and what follows it in the same token are dropped (include_stop keeps the string).
  // Precedence in one token: stop token, stop string, length. At an end by token or length all held bytes are released.
  StopVerdict push(TokenId token, std::string& released);

  // The sequence ended for another reason (cancel, deadline, error): appends what is held.
  void finish(std::string& released);

  std::int64_t num_tokens() const { return num_tokens_; }
  // Ids that the sampler must not give for the next token (end ids and stop_token_ids before min_tokens); may be empty.
  std::span<const TokenId> masked() const;

 private:
  // One stop string's automaton: `matched` bytes of it are the end of the output so far.
  struct Matcher {
    std::int32_t index;                   // into StoppingParams::stop
    std::vector<std::uint32_t> fallback;  // [i]: length of the longest proper border of the first i + 1 bytes
    std::uint32_t matched = 0;
  };
  struct Match {
    std::int32_t index = -1;  // -1: none
    std::size_t begin = 0;    // in held_
    std::size_t end = 0;
  };

  Match find_stop(std::size_t begin);  // runs held_ from `begin` through the matchers
  bool advance(Matcher& matcher, char byte) const;
  std::string_view text_of(TokenId token) const;

  const Tokenizer& tokenizer_;
  const StoppingParams& params_;
  const bool skip_special_;
  std::int64_t num_tokens_ = 0;
  std::string held_;                 // output bytes not yet released
  std::vector<Matcher> matchers_;    // longest stop string first
  std::vector<TokenId> end_tokens_;  // sorted: the file's end ids (unless ignore_eos) and stop_token_ids
};

}  // namespace folio
