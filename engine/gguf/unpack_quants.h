// A row of an integer tensor format as unsigned integers with scales and minima: w = scale * (u - zero_point) for
// formats without a minimum, else scale * u + min. Exact: these are the file's own numbers. Source: the block layouts
// published with ggml (ggml-common.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/gguf/tensor_type.h"

namespace folio {

// The 6-bit scale and minimum of group j of the 8 in a block of Q4_K or Q5_K; `packed`: the block's 12 scale bytes.
struct ScaleMin {
  std::uint8_t scale = 0;
  std::uint8_t min = 0;
};
ScaleMin scale_min_k4(const std::uint8_t* packed, int j);

// `row`: the row's bytes. quants [K]; scales and minima [K / 32], for Q6_K [K / 16].
void unpack_quant_row(TensorType type, std::span<const std::byte> row, std::span<std::uint8_t> quants,
                      std::span<float> scales, std::span<float> minima);

}  // namespace folio
