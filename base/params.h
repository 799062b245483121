// What a caller asks of one generation. Plain values, checked at the door (server/generation), data in the batch after
// that.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace folio {

// The order of application: bias, penalties, temperature, min_p, top_k, top_p. logprobs are of the raw logits.
struct SamplingParams {
  float temperature = 1.0F;         // >= 0; 0 is greedy: the largest logit, ties to the lower id
  std::int32_t top_k = 0;           // 0: off
  float top_p = 1.0F;               // (0, 1]; 1: off
  float min_p = 0.0F;               // [0, 1); 0: off. Keeps p >= min_p * p_max
  float repetition_penalty = 1.0F;  // > 0, over prompt and output: positive logits divided, negative multiplied
  float presence_penalty = 0.0F;    // subtracted once from every token already in the output
  float frequency_penalty = 0.0F;   // subtracted once for each time that it is there
  std::uint64_t seed = 0;           // always resolved before the engine sees it
  std::vector<std::pair<TokenId, float>> logit_bias;  // ids distinct, in [0, vocab)
  std::int32_t num_logprobs = -1;         // -1: none; 0: the chosen token's; N: and of the N best (at most 20)
  std::int32_t num_prompt_logprobs = -1;  // likewise for each token of the prompt but the first

  // Whether the choice of a token reads the tokens before it (other than through the logits).
  bool reads_history() const {
    return repetition_penalty != 1.0F || presence_penalty != 0.0F || frequency_penalty != 0.0F;
  }
};

struct StoppingParams {
  static constexpr std::int64_t kNoLimit = std::numeric_limits<std::int64_t>::max();
  // >= 0; clipped to the rest of the context when the request is added. 0: the prompt is computed and nothing sampled.
  std::int64_t max_tokens = kNoLimit;
  std::int64_t min_tokens = 0;    // end ids are masked and stop strings not looked for until then
  std::vector<std::string> stop;  // non-empty strings over the output's bytes
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;    // the file's end ids are ordinary tokens
  bool include_stop = false;  // the matched stop string stays in the text
};

// Use of the prefix cache.
struct CacheParams {
  static constexpr std::int64_t kPinForever = std::numeric_limits<std::int64_t>::max();
  std::string salt;         // cached blocks are shared only between requests of equal salt
  bool bypass = false;      // neither read nor filled
  std::int64_t pin_ms = 0;  // > 0: the prompt's full blocks are held for that long from when they were computed
};

enum class FinishReason : std::uint8_t { kNone, kStopToken, kStopString, kLength, kCancelled, kDeadline, kError };

}  // namespace folio
