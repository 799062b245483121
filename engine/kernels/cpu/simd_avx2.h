// The vector type of the avx2 level: 16 floats in two registers, 16 int32, 64 bytes. Included by kernels_avx2.cc only.
#pragma once
#include <immintrin.h>

#include "engine/kernels/cpu/kernel_table.h"

namespace folio::cpu {
namespace {

struct Vec {
  __m256 lo, hi;
};
struct Ints {
  __m256i lo, hi;
};
struct Bytes {
  __m256i lo, hi;
};

constexpr int kMatmulRows = 3;  // 16 registers: 3 rows x 1 vector is 6 integer and 6 float accumulators
constexpr int kMatmulVectors = 1;
constexpr int kAttentionRows = 3;
constexpr int kAttentionGroups = 2;
constexpr int kInt8Rows = 3;
constexpr int kInt8Groups = 1;

inline Vec set1(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline Vec load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline Vec load(const Half* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline __m256 widen_bf16(const BFloat16* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
inline Vec load(const BFloat16* p) {
  return {widen_bf16(p), widen_bf16(p + 8)};
}
inline Vec load_first(const float* p, int n) {
  alignas(32) float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
inline void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline void store(Half* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline void store_first(float* p, Vec x, int n) {
  alignas(32) float lanes[16];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

inline Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}  // b where a is NaN
inline Vec min(Vec a, Vec b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline Vec abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
}
// Lanes in [begin, end) kept, the others -inf.
inline Vec keep_lanes(Vec a, int begin, int end) {
  const __m256i first = _mm256_set1_epi32(begin - 1);
  const __m256i last = _mm256_set1_epi32(end);
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i upper = _mm256_add_epi32(lanes, _mm256_set1_epi32(8));
  const __m256i keep_lo = _mm256_and_si256(_mm256_cmpgt_epi32(lanes, first), _mm256_cmpgt_epi32(last, lanes));
  const __m256i keep_hi = _mm256_and_si256(_mm256_cmpgt_epi32(upper, first), _mm256_cmpgt_epi32(last, upper));
  const __m256 gone = _mm256_set1_ps(-__builtin_inff());
  return {_mm256_blendv_ps(gone, a.lo, _mm256_castsi256_ps(keep_lo)),
          _mm256_blendv_ps(gone, a.hi, _mm256_castsi256_ps(keep_hi))};
}

// One fixed tree: lanes 8 apart, 4, 2, 1.
inline float sum(Vec a) {
  const __m256 h = _mm256_add_ps(a.lo, a.hi);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_shuffle_ps(d, d, 1)));
}
inline float max(Vec a) {
  const __m256 h = _mm256_max_ps(a.lo, a.hi);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_shuffle_ps(d, d, 1)));
}

// 2^x for x <= 127: exactly 0 below -126, exactly 1 at 0.
inline __m256 exp2_half(__m256 x) {
  const __m256 n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 f = _mm256_sub_ps(x, n);
  __m256 p = _mm256_set1_ps(0.0001534581242594868F);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.0013399930903688073F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.009618489071726799F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.05550328642129898F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.24022646248340607F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(0.6931471824645996F));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.0F));
  const __m256i exponent = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  const __m256 in_range = _mm256_cmp_ps(x, _mm256_set1_ps(-126.0F), _CMP_GE_OQ);
  return _mm256_and_ps(in_range, _mm256_mul_ps(p, _mm256_castsi256_ps(exponent)));
}
inline Vec exp2(Vec x) {
  return {exp2_half(x.lo), exp2_half(x.hi)};
}

inline Ints set1(std::int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
inline Vec to_float(Ints a) {
  return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)};
}
inline Bytes load_bytes(const std::uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
// Lanes of two bf16: element J of each as floats.
template <int J>
inline Vec bf16_of(Bytes a) {
  const __m256i upper = _mm256_set1_epi32(static_cast<std::int32_t>(0xFFFF0000U));
  const __m256i lo = J == 0 ? _mm256_slli_epi32(a.lo, 16) : _mm256_and_si256(a.lo, upper);
  const __m256i hi = J == 0 ? _mm256_slli_epi32(a.hi, 16) : _mm256_and_si256(a.hi, upper);
  return {_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}
inline Bytes low_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
}
inline Bytes high_nibbles(Bytes a) {
  const __m256i mask = _mm256_set1_epi8(15);
  return {_mm256_and_si256(_mm256_srli_epi16(a.lo, 4), mask), _mm256_and_si256(_mm256_srli_epi16(a.hi, 4), mask)};
}
// In each byte, of which or_masked keeps bits that came from the same byte.
template <int kLeft>
inline Bytes shift_bits(Bytes a) {
  if constexpr (kLeft > 0) return {_mm256_slli_epi16(a.lo, kLeft), _mm256_slli_epi16(a.hi, kLeft)};
  if constexpr (kLeft < 0) return {_mm256_srli_epi16(a.lo, -kLeft), _mm256_srli_epi16(a.hi, -kLeft)};
  return a;
}
// a | (b & kMask)
template <int kMask>
inline Bytes or_masked(Bytes a, Bytes b) {
  const __m256i mask = _mm256_set1_epi8(kMask);
  return {_mm256_or_si256(a.lo, _mm256_and_si256(b.lo, mask)), _mm256_or_si256(a.hi, _mm256_and_si256(b.hi, mask))};
}
// -(a << kBits)
template <int kBits>
inline Ints minus_shifted(Ints a) {
  const __m256i zero = _mm256_setzero_si256();
  return {_mm256_sub_epi32(zero, _mm256_slli_epi32(a.lo, kBits)),
          _mm256_sub_epi32(zero, _mm256_slli_epi32(a.hi, kBits))};
}
// Integers of 8 bits with the zero point 128: a sum that starts with start_eight(the sum of all `a`) and takes each
// four by dot4 ends as the sum of (w - 128) * a; `a` is not -128. Here dot4 takes the zero point off: u * a could
// saturate vpmaddubsw's 16 bits, |w - 128| with the sign put on `a` cannot (2 * 128 * 127).
inline Ints start_eight(Ints /*sum*/) {
  return {_mm256_setzero_si256(), _mm256_setzero_si256()};
}
inline __m256i dot4_half(__m256i acc, __m256i w, __m256i a) {
  const __m256i centred = _mm256_xor_si256(w, _mm256_set1_epi8(-128));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(centred), _mm256_sign_epi8(a, centred));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
inline Ints dot4(Ints acc, Bytes w, std::int32_t a) {
  const __m256i wide = _mm256_set1_epi32(a);
  return {dot4_half(acc.lo, w.lo, wide), dot4_half(acc.hi, w.hi, wide)};
}
// acc + w * a: each lane's four unsigned bytes of w with the four signed bytes of `a`, where w * a of two neighbours
// stays within 16 bits: weights of at most 7 bits, or `a` within [-64, 64].
inline Ints dot4_small(Ints acc, Bytes w, std::int32_t a) {
  const __m256i wide = _mm256_set1_epi32(a);
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(_mm256_maddubs_epi16(w.lo, wide), ones)),
          _mm256_add_epi32(acc.hi, _mm256_madd_epi16(_mm256_maddubs_epi16(w.hi, wide), ones))};
}
inline Ints dot4_part(Ints acc, Bytes w, std::int32_t a) {
  return dot4_small(acc, w, a);
}
// The same, `a` unsigned bytes of at most 7 bits and `v` signed.
inline Ints dot4_signed(Ints acc, std::int32_t a, Bytes v) {
  const __m256i wide = _mm256_set1_epi32(a);
  const __m256i ones = _mm256_set1_epi16(1);
  return {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(_mm256_maddubs_epi16(wide, v.lo), ones)),
          _mm256_add_epi32(acc.hi, _mm256_madd_epi16(_mm256_maddubs_epi16(wide, v.hi), ones))};
}
inline Ints join_parts(Ints upper, Ints lower) {
  return {_mm256_add_epi32(_mm256_slli_epi32(upper.lo, 7), lower.lo),
          _mm256_add_epi32(_mm256_slli_epi32(upper.hi, 7), lower.hi)};
}
inline __m128i narrow_to_bytes(__m256i lo, __m256i hi) {  // 16 integers that fit a signed byte
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(lo, hi), 0xD8);
  return _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
// 16 values of [0, 16383] to integers of 14 bits, to nearest even: their upper and their lower 7 bits.
inline void store_parts(std::uint8_t* upper, std::uint8_t* lower, Vec x) {
  const __m256i lo = _mm256_cvtps_epi32(x.lo);
  const __m256i hi = _mm256_cvtps_epi32(x.hi);
  const __m256i mask = _mm256_set1_epi32(127);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(upper),
                   narrow_to_bytes(_mm256_srli_epi32(lo, 7), _mm256_srli_epi32(hi, 7)));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lower),
                   narrow_to_bytes(_mm256_and_si256(lo, mask), _mm256_and_si256(hi, mask)));
}
// 16 values to int8, to nearest even; returns their sum.
inline std::int32_t store_int8(std::int8_t* p, Vec x) {
  const __m256i lo = _mm256_cvtps_epi32(x.lo);
  const __m256i hi = _mm256_cvtps_epi32(x.hi);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow_to_bytes(lo, hi));
  const __m256i s = _mm256_add_epi32(lo, hi);
  __m128i t = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256(s, 1));
  t = _mm_add_epi32(t, _mm_shuffle_epi32(t, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(t, _mm_shuffle_epi32(t, 0xB1)));
}

// 32 values to int8, to nearest even; their sum, and the sum of the first 16.
inline std::int32_t store_int8(std::int8_t* p, Vec a, Vec b, std::int32_t& first_sum) {
  first_sum = store_int8(p, a);
  return first_sum + store_int8(p + 16, b);
}

}  // namespace
}  // namespace folio::cpu
