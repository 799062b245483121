// Writing RowOutputs from a kernel.
#pragma once
#include "engine/kernels/cuda/row_device.h"
#include "engine/kernels/cuda/row_outputs.h"

namespace folio::cuda {

// Four values of a row from `column`, a multiple of 4, by every lane of the warp: 8 neighbouring lanes have 32
// neighbouring columns, all or none of them valid where the quantised form is wanted.
FOLIO_DEVICE void write_row_outputs(const RowOutputs& out, float4 value, std::int64_t row, std::int32_t column,
                                    std::int32_t columns, bool valid) {
  const std::int64_t at = row * columns + column;
  if (out.bf16 != nullptr && valid) *reinterpret_cast<uint2*>(out.bf16 + at) = to_bf16(value);
  if (out.quant.values == nullptr) return;
  constexpr int kLanes = kQuantGroup / 4;
  const float largest = max_over_lanes<kLanes>(largest_magnitude(value));
  const bool zero = !(largest >= 1e-30F);  // or so near that 127 / largest may be no number
  const std::uint32_t bytes = to_int8(value, zero ? 0.0F : 127.0F / largest);
  int sum = dot_4x8(bytes, 0x01010101U, 0);
  for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (!valid) return;
  *reinterpret_cast<std::uint32_t*>(out.quant.values + at) = bytes;
  if (threadIdx.x % kLanes == 0) {
    const float scale = zero ? 0.0F : largest / 127.0F;
    out.quant.groups[at / kQuantGroup] = {scale, scale * static_cast<float>(sum)};
  }
}

}  // namespace folio::cuda
