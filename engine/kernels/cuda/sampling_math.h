// The arithmetic of sampling on the device. Weights are those of engine/sampling/row_math.h, but are added up as
// integers: a sum is then exact, and one number whatever its order, the number of threads or of CTAs. Files that
// include this are compiled without contraction to FMA (-fmad=false), so that host and device agree to the bit.
#pragma once
#include <cfloat>
#include <cmath>

#include "engine/kernels/cuda/device.h"

namespace folio::cuda {

inline constexpr std::int32_t kMaxSampledVocab = 1 << 19;  // so many weights of 1 stay within 64 bits

// What exp_nonpositive() of row_math.h computes, operation for operation.
FOLIO_HOST_DEVICE float exp_weight(float x) {
  const float in = x > -87.0F ? x : -87.0F;
  constexpr float kRound = 0x1.8p23F;
  const float shifted = in * 0x1.715476p0F + kRound;
  const float n = shifted - kRound;
  const float r = (in - n * 0x1.62ep-1F) - n * 0x1.0bfbe8p-15F;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const std::uint32_t power = (__builtin_bit_cast(std::uint32_t, shifted) << 23U) + (127U << 23U);  // 2^n
  const float value = p * __builtin_bit_cast(float, power);
  return value > 1.7e-38F ? value : 0.0F;
}

// The weight of a logit in units of 2^-44 (what is below counts as nothing); 0 under min_p.
FOLIO_HOST_DEVICE std::uint64_t fixed_weight(float logit, float max, float temperature, float min_p) {
  const float weight = exp_weight((logit - max) / temperature);
  return weight >= min_p ? static_cast<std::uint64_t>(weight * 0x1p44F) : 0;
}

// Orders as the values do; both zeros have one key. -infinity is below kLeastKey. NaN is above every number or below.
FOLIO_HOST_DEVICE std::uint32_t order_key(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value + 0.0F);
  return (bits >> 31U) != 0 ? ~bits : bits | 0x80000000U;
}
FOLIO_HOST_DEVICE float key_value(std::uint32_t key) {
  return __builtin_bit_cast(float, (key >> 31U) != 0 ? key & 0x7fffffffU : ~key);
}
// A finite logit that is less than this one weighs nothing.
FOLIO_HOST_DEVICE float least_weighing(float max, float temperature) {
  const double least = static_cast<double>(max) - 88.0 * static_cast<double>(temperature);
  return least < -static_cast<double>(FLT_MAX) ? -FLT_MAX : static_cast<float>(least);
}

FOLIO_HOST_DEVICE std::uint64_t between(std::uint64_t low, std::uint64_t value, std::uint64_t high) {
  return value < low ? low : value > high ? high : value;
}
// What the head of the ranking that top_p keeps weighs at least.
FOLIO_HOST_DEVICE std::uint64_t head_goal(float top_p, std::uint64_t total) {
  return between(1, static_cast<std::uint64_t>(ceil(static_cast<double>(top_p) * static_cast<double>(total))), total);
}
// The running sum over the kept ids reaches this at the id that is drawn: it then passes uniform * total.
FOLIO_HOST_DEVICE std::uint64_t draw_goal(double uniform, std::uint64_t total) {
  return between(1, static_cast<std::uint64_t>(uniform * static_cast<double>(total)) + 1, total);
}

}  // namespace folio::cuda
