// The vector type of the avx512 level: 16 floats, 16 int32, 64 bytes. Included by kernels_avx512*.cc only.
#pragma once
#include <immintrin.h>

#include "engine/kernels/cpu/kernel_table.h"

namespace folio::cpu {
namespace {

struct Vec {
  __m512 v;
};
struct Ints {
  __m512i v;
};
struct Bytes {
  __m512i v;
};

constexpr int kMatmulRows = 4;  // of a tile: 8 integer and 8 float accumulators, and all the rest stays in registers
constexpr int kMatmulVectors = 2;
constexpr int kAttentionRows = 6;
constexpr int kAttentionGroups = 4;
constexpr int kInt8Rows = 3;  // two accumulators where the others have one
constexpr int kInt8Groups = 4;

inline __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>((1U << n) - 1U);
}

inline Vec set1(float x) {
  return {_mm512_set1_ps(x)};
}
inline Vec load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
inline Vec load(const Half* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline Vec load(const BFloat16* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
inline Vec load_first(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
inline void store(float* p, Vec x) {
  _mm512_storeu_ps(p, x.v);
}
inline void store(Half* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_first(float* p, Vec x, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x.v);
}

inline Vec add(Vec a, Vec b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm512_max_ps(a.v, b.v)};
}  // b where a is NaN
inline Vec min(Vec a, Vec b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline Vec abs(Vec a) {
  return {_mm512_abs_ps(a.v)};
}
// Lanes in [begin, end) kept, the others -inf.
inline Vec keep_lanes(Vec a, int begin, int end) {
  const auto keep = static_cast<__mmask16>(((1U << end) - 1U) & ~((1U << begin) - 1U));
  return {_mm512_mask_blend_ps(keep, _mm512_set1_ps(-__builtin_inff()), a.v)};
}

// One fixed tree: lanes 8 apart, 4, 2, 1.
inline float sum(Vec a) {
  const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float max(Vec a) {
  return _mm512_reduce_max_ps(a.v);
}

// 2^x for x <= 127: exactly 0 below -126, exactly 1 at 0.
inline Vec exp2(Vec x) {
  const __m512 n = _mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = _mm512_sub_ps(x.v, n);
  __m512 p = _mm512_set1_ps(0.0001534581242594868F);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.0013399930903688073F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.009618489071726799F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.05550328642129898F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.24022646248340607F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(0.6931471824645996F));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0F));
  const __mmask16 in_range = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(-126.0F), _CMP_GE_OQ);
  return {_mm512_maskz_scalef_ps(in_range, p, n)};
}

inline Ints set1(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}
inline Vec to_float(Ints a) {
  return {_mm512_cvtepi32_ps(a.v)};
}
inline Bytes load_bytes(const std::uint8_t* p) {
  return {_mm512_loadu_si512(p)};
}
// Lanes of two bf16: element J of each as floats.
template <int J>
inline Vec bf16_of(Bytes a) {
  const __m512i upper = _mm512_set1_epi32(static_cast<std::int32_t>(0xFFFF0000U));
  return {_mm512_castsi512_ps(J == 0 ? _mm512_slli_epi32(a.v, 16) : _mm512_and_si512(a.v, upper))};
}
inline Bytes low_nibbles(Bytes a) {
  return {_mm512_and_si512(a.v, _mm512_set1_epi8(15))};
}
inline Bytes high_nibbles(Bytes a) {
  return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(15))};
}
// In each byte, of which or_masked keeps bits that came from the same byte.
template <int kLeft>
inline Bytes shift_bits(Bytes a) {
  if constexpr (kLeft > 0) return {_mm512_slli_epi16(a.v, kLeft)};
  if constexpr (kLeft < 0) return {_mm512_srli_epi16(a.v, -kLeft)};
  return a;
}
// a | (b & kMask)
template <int kMask>
inline Bytes or_masked(Bytes a, Bytes b) {
  return {_mm512_ternarylogic_epi32(a.v, b.v, _mm512_set1_epi8(kMask), 0xF8)};
}
// -(a << kBits)
template <int kBits>
inline Ints minus_shifted(Ints a) {
  return {_mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(a.v, kBits))};
}
// Integers of 8 bits with the zero point 128: a sum that starts with start_eight(the sum of all `a`) and takes each
// four by dot4 ends as the sum of (w - 128) * a; `a` is not -128.
inline Ints start_eight(Ints sum) {
  return minus_shifted<7>(sum);
}
// acc + w * a: each lane's four unsigned bytes of w with the four signed bytes of `a`.
inline Ints dot4(Ints acc, Bytes w, std::int32_t a) {
  return {_mm512_dpbusd_epi32(acc.v, w.v, _mm512_set1_epi32(a))};
}
// Weights of at most 7 bits: nothing to gain on this level.
inline Ints dot4_small(Ints acc, Bytes w, std::int32_t a) {
  return dot4(acc, w, a);
}
// acc + w * a, and the same with `a` unsigned bytes of at most 7 bits and `v` signed. In words of the assembler, since
// g++ 12 copies and spills the intrinsic's accumulators where 24 of them are live: attention took half as long again.
inline Ints dot4_part(Ints acc, Bytes w, std::int32_t a) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(w.v), "v"(_mm512_set1_epi32(a)));
  return acc;
}
inline Ints dot4_signed(Ints acc, std::int32_t a, Bytes v) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc.v) : "v"(_mm512_set1_epi32(a)), "v"(v.v));
  return acc;
}
inline Ints join_parts(Ints upper, Ints lower) {
  return {_mm512_add_epi32(_mm512_slli_epi32(upper.v, 7), lower.v)};
}
// 16 values of [0, 16383] to integers of 14 bits, to nearest even: their upper and their lower 7 bits.
inline void store_parts(std::uint8_t* upper, std::uint8_t* lower, Vec x) {
  const __m512i i = _mm512_cvtps_epi32(x.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(upper), _mm512_cvtepi32_epi8(_mm512_srli_epi32(i, 7)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lower),
                   _mm512_cvtepi32_epi8(_mm512_and_si512(i, _mm512_set1_epi32(127))));
}
// 16 values to int8, to nearest even; returns their sum.
inline std::int32_t store_int8(std::int8_t* p, Vec x) {
  const __m512i i = _mm512_cvtps_epi32(x.v);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(i));
  return _mm512_reduce_add_epi32(i);
}

// 32 values to int8, to nearest even; their sum, and the sum of the first 16.
inline std::int32_t store_int8(std::int8_t* p, Vec a, Vec b, std::int32_t& first_sum) {
  const __m128i first = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v));
  const __m128i second = _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(b.v));
  const __m256i q = _mm256_inserti128_si256(_mm256_castsi128_si256(first), second, 1);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), q);
  __m256i s = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
  s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4E));
  s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xB1));
  first_sum = _mm256_cvtsi256_si32(s);
  return first_sum + _mm_cvtsi128_si32(_mm256_extracti128_si256(s, 1));
}

}  // namespace
}  // namespace folio::cpu
