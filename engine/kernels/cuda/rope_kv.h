// Between the projections and the attention: q and k normed and rotated head by head, k and v written to the cache.
// Rotary embedding: Su et al., arXiv:2104.09864. Pointers are of the device, rows begin at multiples of 16 bytes.
#pragma once
#include "engine/kernels/cuda/kv_layout.h"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/norm_rows.h"

namespace folio::cuda {

// Once a step and set of frequencies. The angle is rounded to float first, as the models' training code has it; its
// cosine and sine are those of double precision, rounded (magnitudes to 2^50).
struct RopeAngles {
  const std::int32_t* positions = nullptr;     // [num_tokens]
  const float* inverse_frequencies = nullptr;  // [num_pairs]
  std::int32_t num_pairs = 0;                  // rotary_dim / 2
  float2* angles = nullptr;                    // [num_tokens][num_pairs] {cosine, sine}
};
void make_angles(const RopeAngles& work, std::int32_t num_tokens, cudaStream_t stream);

inline constexpr std::int32_t kMaxRopeHeadDim = 256;

// What is written to the cache is finite, a function of the token's own row: f16 is clamped to +-65504, bf16 to
// +-3.0e38; int8 and fp8 (after the clamp of f16) have the row's largest magnitude / 127 or / 448 as scale, 0 where
// that magnitude is under 1e-30. NaN is the lower bound.
struct RopeWriteKv {
  KvLayout layout = {};  // head_dim a multiple of 16, at most kMaxRopeHeadDim
  void* cache = nullptr;
  std::int32_t layer = 0;
  std::int32_t num_heads = 0;  // of queries
  std::int32_t head_dim = 0;   // of q, k and v, a multiple of 4: what layout.head_dim has more is written as zeros

  std::int32_t rotary_dim = 0;          // even, at most head_dim
  bool interleaved = false;             // pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  const float2* angles = nullptr;       // [num_tokens][rotary_dim / 2]
  const std::int32_t* slots = nullptr;  // [num_tokens] block * block_size + offset, distinct; negative: not written

  DeviceNorm q_norm = {};  // weights [head_dim]
  DeviceNorm k_norm = {};
  float query_scale = 1.0F;  // for q, last: log2(e) is in it where the attention wants that
  float* q = nullptr;        // [num_tokens][num_heads][head_dim], in place
  const float* k = nullptr;  // [num_tokens][num_kv_heads][head_dim]
  const float* v = nullptr;
};
void rope_write_kv(const RopeWriteKv& work, std::int32_t num_tokens, cudaStream_t stream);

}  // namespace folio::cuda
