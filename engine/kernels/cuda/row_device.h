// Pieces that the row kernels share. A thread works on four neighbouring columns at a time, so that a warp reads and
// writes whole lines, and 8 neighbouring lanes hold the 32 values that share a scale.
#pragma once
#include "engine/kernels/cuda/device.h"

namespace folio::cuda {

FOLIO_DEVICE float4 load_floats(const float* from) {
  return __builtin_bit_cast(float4, load_16(from));
}
FOLIO_DEVICE void store_floats(float* to, float4 value) {
  store_16(to, __builtin_bit_cast(uint4, value));
}

FOLIO_DEVICE float4 multiply(float4 a, float4 b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
FOLIO_DEVICE float4 multiply(float4 a, float b) {
  return {a.x * b, a.y * b, a.z * b, a.w * b};
}
FOLIO_DEVICE float4 add(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
FOLIO_DEVICE float add_squares(float4 a, float sum) {
  return fmaf(a.x, a.x, fmaf(a.y, a.y, fmaf(a.z, a.z, fmaf(a.w, a.w, sum))));
}
FOLIO_DEVICE float largest_magnitude(float4 a) {
  return fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w)));
}

template <int kLanes = kWarpSize>
FOLIO_DEVICE float sum_over_lanes(float value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}
template <int kLanes = kWarpSize>
FOLIO_DEVICE float max_over_lanes(float value) {
  for (int mask = kLanes / 2; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}

// The sum over the CTA, the same in all threads: lanes by a tree, then warps in order. `partials`: [warps], shared, of
// this call alone.
FOLIO_DEVICE float sum_over_cta(float value, float* partials) {
  value = sum_over_lanes(value);
  if (threadIdx.x % kWarpSize == 0) partials[threadIdx.x / kWarpSize] = value;
  sync_cta();
  float sum = 0.0F;
  for (unsigned warp = 0; warp < blockDim.x / kWarpSize; ++warp) sum += partials[warp];
  return sum;
}

FOLIO_DEVICE std::uint32_t pack_halves(std::uint16_t low, std::uint16_t high) {
  return low | static_cast<std::uint32_t>(high) << 16U;
}
FOLIO_DEVICE std::uint16_t bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
FOLIO_DEVICE std::uint16_t f16_bits(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
FOLIO_DEVICE uint2 to_bf16(float4 value) {
  return {pack_halves(bf16_bits(value.x), bf16_bits(value.y)), pack_halves(bf16_bits(value.z), bf16_bits(value.w))};
}
FOLIO_DEVICE uint2 to_f16(float4 value) {
  return {pack_halves(f16_bits(value.x), f16_bits(value.y)), pack_halves(f16_bits(value.z), f16_bits(value.w))};
}

// To nearest even, within +-127; NaN is -127.
FOLIO_DEVICE int to_int8(float value) {
  const float bounded = value > -127.0F ? value : -127.0F;
  return static_cast<int>(rintf(bounded < 127.0F ? bounded : 127.0F));
}
FOLIO_DEVICE std::uint32_t pack_bytes(int a, int b, int c, int d) {
  return (static_cast<std::uint32_t>(a) & 255U) | (static_cast<std::uint32_t>(b) & 255U) << 8U |
         (static_cast<std::uint32_t>(c) & 255U) << 16U | static_cast<std::uint32_t>(d) << 24U;
}
FOLIO_DEVICE std::uint32_t to_int8(float4 value, float steps) {
  return pack_bytes(to_int8(value.x * steps), to_int8(value.y * steps), to_int8(value.z * steps),
                    to_int8(value.w * steps));
}

}  // namespace folio::cuda
