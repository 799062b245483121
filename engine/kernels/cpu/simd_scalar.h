// The vector type of the scalar level: plain arrays and loops. Included by kernels_scalar.cc only.
#pragma once
#include "engine/kernels/cpu/kernel_table.h"

namespace folio::cpu {
namespace {

struct Vec {
  float v[16];
};
struct Ints {
  std::int32_t v[16];
};
struct Bytes {
  std::uint8_t v[64];
};

constexpr int kMatmulRows = 2;
constexpr int kMatmulVectors = 1;
constexpr int kAttentionRows = 2;
constexpr int kAttentionGroups = 1;
constexpr int kInt8Rows = 2;
constexpr int kInt8Groups = 1;

template <class Fn>
inline Vec lanes(Fn fn) {
  Vec r;
  for (int i = 0; i < 16; ++i) r.v[i] = fn(i);
  return r;
}

inline float widen(float x) {
  return x;
}
inline float widen(BFloat16 x) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(x.bits) << 16U);
}
inline float widen(Half x) {
  const std::uint32_t sign = static_cast<std::uint32_t>(x.bits & 0x8000U) << 16U;
  const std::uint32_t body = x.bits & 0x7FFFU;
  if (body >= 0x7C00U) return __builtin_bit_cast(float, sign | 0x7F800000U | (body & 0x3FFU) << 13U);
  // The bits as a float with the exponent 112 too small, put right by an exact product: subnormals come out too.
  const float value = __builtin_bit_cast(float, body << 13U) * 0x1p112F;
  return __builtin_bit_cast(float, __builtin_bit_cast(std::uint32_t, value) | sign);
}
inline Half narrow(float x) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t sign = bits >> 16U & 0x8000U;
  const std::uint32_t body = bits & 0x7FFFFFFFU;
  if (body > 0x7F800000U) return {static_cast<std::uint16_t>(sign | 0x7E00U)};
  if (body >= 0x477FF000U) return {static_cast<std::uint16_t>(sign | 0x7C00U)};
  if (body < 0x38800000U) {  // subnormal: let a float addition do the rounding
    const float shifted = __builtin_bit_cast(float, body) + 0.5F;
    return {static_cast<std::uint16_t>(sign | (__builtin_bit_cast(std::uint32_t, shifted) - 0x3F000000U))};
  }
  const std::uint32_t rounded = body + 0xFFFU + (body >> 13U & 1U) - 0x38000000U;
  return {static_cast<std::uint16_t>(sign | rounded >> 13U)};
}

inline Vec set1(float x) {
  return lanes([&](int) { return x; });
}
inline Vec load(const float* p) {
  return lanes([&](int i) { return p[i]; });
}
inline Vec load(const Half* p) {
  return lanes([&](int i) { return widen(p[i]); });
}
inline Vec load(const BFloat16* p) {
  return lanes([&](int i) { return widen(p[i]); });
}
inline Vec load_first(const float* p, int n) {
  return lanes([&](int i) { return i < n ? p[i] : 0.0F; });
}
inline void store(float* p, const Vec& x) {
  for (int i = 0; i < 16; ++i) p[i] = x.v[i];
}
inline void store(Half* p, const Vec& x) {
  for (int i = 0; i < 16; ++i) p[i] = narrow(x.v[i]);
}
inline void store_first(float* p, const Vec& x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.v[i];
}

inline Vec add(const Vec& a, const Vec& b) {
  return lanes([&](int i) { return a.v[i] + b.v[i]; });
}
inline Vec sub(const Vec& a, const Vec& b) {
  return lanes([&](int i) { return a.v[i] - b.v[i]; });
}
inline Vec mul(const Vec& a, const Vec& b) {
  return lanes([&](int i) { return a.v[i] * b.v[i]; });
}
inline Vec div(const Vec& a, const Vec& b) {
  return lanes([&](int i) { return a.v[i] / b.v[i]; });
}
// Two roundings where the other levels have one: this level's results are its own.
inline Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return lanes([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
inline Vec max(const Vec& a, const Vec& b) {
  return lanes([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec min(const Vec& a, const Vec& b) {
  return lanes([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
inline Vec abs(const Vec& a) {
  return lanes([&](int i) { return __builtin_fabsf(a.v[i]); });
}
// Lanes in [begin, end) kept, the others -inf.
inline Vec keep_lanes(const Vec& a, int begin, int end) {
  return lanes([&](int i) { return i >= begin && i < end ? a.v[i] : -__builtin_inff(); });
}

// One fixed tree: lanes 8 apart, 4, 2, 1.
inline float sum(Vec a) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) a.v[i] += a.v[i + width];
  }
  return a.v[0];
}
inline float max(const Vec& a) {
  float m = a.v[0];
  for (int i = 1; i < 16; ++i) m = a.v[i] > m ? a.v[i] : m;
  return m;
}

// 2^x for x <= 127: exactly 0 below -126, exactly 1 at 0.
inline float exp2_one(float x) {
  if (!(x >= -126.0F)) return 0.0F;
  const float n = (x + 12582912.0F) - 12582912.0F;  // to nearest even: 1.5 * 2^23 leaves no fraction
  const float f = x - n;
  float p = 0.0001534581242594868F;
  p = p * f + 0.0013399930903688073F;
  p = p * f + 0.009618489071726799F;
  p = p * f + 0.05550328642129898F;
  p = p * f + 0.24022646248340607F;
  p = p * f + 0.6931471824645996F;
  p = p * f + 1.0F;
  return p * __builtin_bit_cast(float, static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23U);
}
inline Vec exp2(const Vec& x) {
  return lanes([&](int i) { return exp2_one(x.v[i]); });
}

inline Ints set1(std::int32_t x) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.v[i] = x;
  return r;
}
inline Vec to_float(const Ints& a) {
  return lanes([&](int i) { return static_cast<float>(a.v[i]); });
}
inline Bytes load_bytes(const std::uint8_t* p) {
  Bytes r;
  for (int i = 0; i < 64; ++i) r.v[i] = p[i];
  return r;
}
// Lanes of two bf16: element J of each as floats.
template <int J>
inline Vec bf16_of(const Bytes& a) {
  return lanes([&](int i) {
    return widen(BFloat16{static_cast<std::uint16_t>(a.v[4 * i + 2 * J] | a.v[4 * i + 2 * J + 1] << 8U)});
  });
}
inline Bytes low_nibbles(const Bytes& a) {
  Bytes r;
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<std::uint8_t>(a.v[i] & 15U);
  return r;
}
inline Bytes high_nibbles(const Bytes& a) {
  Bytes r;
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<std::uint8_t>(a.v[i] >> 4U);
  return r;
}
template <int kLeft>
inline Bytes shift_bits(const Bytes& a) {
  Bytes r;
  for (int i = 0; i < 64; ++i) {
    if constexpr (kLeft > 0) r.v[i] = static_cast<std::uint8_t>(a.v[i] << kLeft);
    if constexpr (kLeft <= 0) r.v[i] = static_cast<std::uint8_t>(a.v[i] >> -kLeft);
  }
  return r;
}
// a | (b & kMask)
template <int kMask>
inline Bytes or_masked(const Bytes& a, const Bytes& b) {
  Bytes r;
  for (int i = 0; i < 64; ++i) r.v[i] = static_cast<std::uint8_t>(a.v[i] | (b.v[i] & kMask));
  return r;
}
// -(a << kBits)
template <int kBits>
inline Ints minus_shifted(const Ints& a) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.v[i] = -(a.v[i] * (1 << kBits));
  return r;
}
// Integers of 8 bits with the zero point 128: a sum that starts with start_eight(the sum of all `a`) and takes each
// four by dot4 ends as the sum of (w - 128) * a; `a` is not -128.
inline Ints start_eight(const Ints& sum) {
  return minus_shifted<7>(sum);
}
// acc + w * a: each lane's four unsigned bytes of w with the four signed bytes of `a`.
inline Ints dot4(Ints acc, const Bytes& w, std::int32_t a) {
  std::int32_t q[4];
  for (int j = 0; j < 4; ++j)
    q[j] = static_cast<std::int8_t>(static_cast<std::uint32_t>(a) >> 8U * static_cast<unsigned>(j));
  for (int i = 0; i < 16; ++i) {
    const std::uint8_t* b = w.v + 4 * i;
    acc.v[i] += b[0] * q[0] + b[1] * q[1] + b[2] * q[2] + b[3] * q[3];
  }
  return acc;
}
inline Ints dot4_small(const Ints& acc, const Bytes& w, std::int32_t a) {
  return dot4(acc, w, a);
}
inline Ints dot4_part(const Ints& acc, const Bytes& w, std::int32_t a) {
  return dot4(acc, w, a);
}
// The same, `a` unsigned bytes of at most 7 bits and `v` signed.
inline Ints dot4_signed(Ints acc, std::int32_t a, const Bytes& v) {
  for (int i = 0; i < 64; ++i) {
    acc.v[i / 4] += (a >> 8 * (i % 4) & 127) * static_cast<std::int8_t>(v.v[i]);
  }
  return acc;
}
inline Ints join_parts(const Ints& upper, const Ints& lower) {
  Ints r;
  for (int i = 0; i < 16; ++i) r.v[i] = 128 * upper.v[i] + lower.v[i];
  return r;
}
// 16 values of [0, 16383] to integers of 14 bits, to nearest even: their upper and their lower 7 bits.
inline void store_parts(std::uint8_t* upper, std::uint8_t* lower, const Vec& x) {
  for (int i = 0; i < 16; ++i) {
    const auto n = static_cast<std::int32_t>((x.v[i] + 12582912.0F) - 12582912.0F);
    upper[i] = static_cast<std::uint8_t>(n >> 7);
    lower[i] = static_cast<std::uint8_t>(n & 127);
  }
}
// 16 values to int8, to nearest even; returns their sum. What does not fit, or is NaN, is the nearer bound, or -127.
inline std::int32_t store_int8(std::int8_t* p, const Vec& x) {
  const Vec fitting = min(max(x, set1(-127.0F)), set1(127.0F));
  std::int32_t total = 0;
  for (int i = 0; i < 16; ++i) {
    const auto q = static_cast<std::int32_t>((fitting.v[i] + 12582912.0F) - 12582912.0F);
    p[i] = static_cast<std::int8_t>(q);
    total += q;
  }
  return total;
}

// 32 values to int8, to nearest even; their sum, and the sum of the first 16.
inline std::int32_t store_int8(std::int8_t* p, const Vec& a, const Vec& b, std::int32_t& first_sum) {
  first_sum = store_int8(p, a);
  return first_sum + store_int8(p + 16, b);
}

}  // namespace
}  // namespace folio::cpu
