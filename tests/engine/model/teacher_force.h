// Logits of a given token sequence, through the paged cache in chunks, with block numbers shuffled.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/model/decoder.h"

namespace folio {

// Calls visit(i, logits of position i) for positions first_row .. tokens.size() - 1, in order. At most 64 logit rows a
// step.
void teacher_force(Decoder& model, std::span<const TokenId> tokens, int chunk, int first_row,
                   const std::function<void(int, std::span<const float>)>& visit);

// Natural log of the softmax at `id`, in double.
double log_probability(std::span<const float> logits, TokenId id);

TokenId argmax(std::span<const float> logits);

}  // namespace folio
