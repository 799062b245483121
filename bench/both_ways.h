// One generation in two ways, on the model itself: with the KV cache (the prompt in one pass, then one token a pass)
// and without (all tokens so far in one pass, for every token again). Nothing of a pass outlives it in the second way:
// the blocks are its scratch memory, and their order is turned round after every pass, so that what was left in one
// from the pass before would be found at the wrong place.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "engine/model/model.h"

namespace folio::bench {

struct Generated {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;  // of each id, of the raw logits
  std::vector<double> pass_ms;  // that gave each id; sampling left out
};

// `num_tokens` after the prompt, drawn at temperature 1 by a fixed seed. REQUIRES blocks for all of them.
Generated generate_with_cache(Model& model, std::span<const TokenId> prompt, int num_tokens);
Generated generate_without_cache(Model& model, std::span<const TokenId> prompt, int num_tokens);

// What differs first: an id, or a bit of a log probability. Empty: nothing.
std::string difference(const Generated& a, const Generated& b);

}  // namespace folio::bench
