// What quant_dot.h multiplies: activations as int8 rows, and a GGUF matrix of an integer format as planes that a warp
// reads 16 bytes a lane.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/kernels/cuda/device.h"

namespace folio::cuda {

inline constexpr int kQuantGroup = 32;  // values that share a scale

// Rows of activations, value = scale * int8. A row is quantised by itself, as the CPU does it: scale = largest
// magnitude of the group / 127, int8 = nearest of value * (127 / largest); below 1e-30 all is zero.
// On the device; `values` begins at a multiple of 16 bytes.
struct QuantRows {
  std::int8_t* values = nullptr;  // [rows][depth]
  float2* groups = nullptr;       // [rows][depth / 32] {scale, scale * the sum of the group's int8}
  std::int32_t depth = 0;         // a multiple of 32
};

}  // namespace folio::cuda
