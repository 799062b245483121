// Decides, token by token, whether a sequence ends and which bytes may leave. The earliest end wins, then the longest
// stop string. Bytes that may be the beginning of a stop string are held, and released once when they cannot be any
// more or the sequence ends without it.
//
// What is asked is a StopRules: built once a request, by whoever brings it, shared by its sequences and never changed
// (any thread). Where a sequence stands is a StopChecker: one per sequence, owned by the engine, called on the engine
// thread only.
//
// min_tokens: the first min_tokens tokens end nothing. End ids among them are ordinary tokens (the sampler is told not
// to give them: masked()), and a stop string whose last byte is in one of them is not a stop. One that begins in them
// and ends later is.
//
// Cost: each byte of output is compared with each stop string a constant number of times, amortised (Knuth, Morris,
// Pratt 1977: one automaton a string), whatever the strings and the text are. The rules take 5 bytes per stop byte; a
// checker takes 4 bytes per stop string from its first token on, and the bytes it holds.
#pragma once
#include <cstdint>
#include <memory>
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

class StopRules {
 public:
  // `tokenizer` outlives the rules. params.max_tokens is not read: it is clipped to the context only when the request
  // is accepted, and a checker is told the result. skip_special: control and unknown tokens add no bytes to the text
  // (else their spelling).
  StopRules(const Tokenizer& tokenizer, StoppingParams params, bool skip_special);

 private:
  friend class StopChecker;
  // One stop string's automaton.
  struct Matcher {
    std::string stop;
    std::vector<std::uint32_t> fallback;  // [i]: length of the longest proper border of the first i + 1 bytes
    std::int32_t index = -1;              // into StoppingParams::stop
  };

  bool advance(std::size_t matcher, char byte, std::uint32_t& matched) const;
  std::string_view text_of(TokenId token) const;

  const Tokenizer& tokenizer_;
  const std::int64_t min_tokens_;
  const bool include_stop_;
  const bool skip_special_;
  std::vector<Matcher> matchers_;    // longest stop string first
  std::vector<TokenId> end_tokens_;  // sorted: the file's end ids (unless ignore_eos) and stop_token_ids
};

class StopChecker {
 public:
  // max_tokens is already clipped to the context.
  StopChecker(std::shared_ptr<const StopRules> rules, std::int64_t max_tokens);

  // One more output token, in order. Appends to `released` the output bytes that became certain. An end token adds no
  // bytes; the text of a stop string and what follows it in the same token are dropped (include_stop keeps the string).
  // Precedence in one token: stop token, stop string, length. At an end by token or length all held bytes are released.
  StopVerdict push(TokenId token, std::string& released);

  // The sequence ended for another reason (cancel, deadline, error): appends what is held.
  void finish(std::string& released);

  std::int64_t num_tokens() const { return num_tokens_; }
  // Ids that the sampler must not give for output token `index` (end ids and stop_token_ids before min_tokens); may be
  // empty. Stands as long as the rules. The next token's index is num_tokens(); at depth 2 one more is on its way.
  std::span<const TokenId> masked(std::int64_t index) const;

 private:
  struct Match {
    std::int32_t index = -1;  // -1: none
    std::size_t begin = 0;    // in held_
    std::size_t end = 0;
  };

  Match find_stop(std::size_t begin);  // runs held_ from `begin` through the matchers

  std::shared_ptr<const StopRules> rules_;
  std::int64_t max_tokens_;
  std::int64_t num_tokens_ = 0;
  std::string held_;                    // output bytes not yet released
  std::vector<std::uint32_t> matched_;  // by matcher: bytes of it that are the end of the output so far; empty before
                                        // the first token
};

}  // namespace folio
