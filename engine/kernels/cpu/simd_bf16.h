// What AVX512_BF16 adds to simd_avx512.h. Included by kernels_avx512bf16.cc only.
#pragma once

namespace folio::cpu {
namespace {

// acc + a * b: each lane's two bf16 of `a` with the two at `pair`.
inline Vec dot2_bf16(Vec acc, Bytes a, const void* pair) {
  std::int32_t two;
  __builtin_memcpy(&two, pair, 4);
  return {_mm512_dpbf16_ps(acc.v, reinterpret_cast<__m512bh>(a.v), reinterpret_cast<__m512bh>(_mm512_set1_epi32(two)))};
}
// To nearest even, a subnormal to 0; returns what was stored.
inline Vec round_to_bf16(BFloat16* p, Vec x) {
  const auto rounded = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), rounded);
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16))};
}

}  // namespace
}  // namespace folio::cpu
