// Decides, token by token, whether a sequence ends and which bytes may leave. Owned by the engine, one per sequence,
// called on the engine thread only. The earliest end wins, then the longest stop string. Bytes that may be the
// beginning of a stop string are held, and released once when they cannot be any more or the sequence ends without it.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

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
  StopChecker(const Tokenizer& tokenizer, const StoppingParams& params, bool skip_special);

  // One more output token, in order. Appends to `released` the output bytes that became certain. An end token adds no
  // bytes; the text of a stop string and what follows it in the same token are dropped (include_stop keeps the string).
  // Precedence in one token: stop token, stop string, length.
  StopVerdict push(TokenId token, std::string& released);

  // The sequence ended for another reason (cancel, deadline, error): appends what is held.
  void finish(std::string& released);

  std::int64_t num_tokens() const { return num_tokens_; }
  // Ids that the sampler must not give for the next token (end ids and stop_token_ids before min_tokens); may be empty.
  std::span<const TokenId> masked() const;

 private:
  const Tokenizer& tokenizer_;
  const StoppingParams& params_;
  const bool skip_special_;
  std::int64_t num_tokens_ = 0;
  std::string held_;                 // output bytes not yet released
  std::vector<TokenId> end_tokens_;  // sorted: the file's end ids (unless ignore_eos) and stop_token_ids
};

}  // namespace folio
