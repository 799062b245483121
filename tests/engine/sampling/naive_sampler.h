// The sampler's plain twin: what the parameters mean, in doubles, with a full sort and libm.
#pragma once
#include <span>
#include <vector>

#include "engine/sampling/sampler.h"

namespace folio::testing {

// How far the cuts and the draw are moved: floats decide within a few 1e-6, so near a boundary either side is right.
struct Nudge {
  double draw = 0;  // added to the uniform number
  double cut = 0;   // min_p and top_p are multiplied by 1 + cut
};

TokenId naive_choice(const SampleRequest& request, std::span<const float> raw_logits, Nudge nudge = {});
// Natural logs of the softmax.
std::vector<double> naive_logprobs(std::span<const float> raw_logits);

}  // namespace folio::testing
