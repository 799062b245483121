// When the tokens of one request came, from the arrivals of its stream. Pure: no clock, no wire.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "client/load_test/transport.h"

namespace folio::client {

// Tokens that came at one moment, seconds from the start of the load.
struct TokenMoment {
  double at_s = 0;
  std::int64_t tokens = 0;
};

struct TokenTimes {
  std::vector<TokenMoment> moments;  // in order; a chunk with three tokens of an answer is one
  // One for each token after the first of its answer: the time since the token before it. A message's gap is shared by
  // its tokens; tokens beside the first of an answer have 0. So for one answer they are tokens - 1, and their sum is
  // the time from the first token to the last.
  std::vector<float> gaps_ms;
};

// Whether a message holds anything of the answer: a role, an empty delta or usage alone is none.
inline bool has_content(const Arrival& arrival) {
  return arrival.tokens > 0 || arrival.text_bytes > 0;
}

// Ids say how many tokens a message has. Without any, `total` tokens are spread over the messages in proportion to
// their text's bytes (rounded so that they add up, the first with text has one); without a total there is nothing to
// say: an empty result. `total` does not matter where ids came.
TokenTimes measure(const std::vector<Arrival>& arrivals, std::optional<std::int64_t> total, SteadyTime start);

}  // namespace folio::client
