// What the attention kernels of a layer are given, and the one rule by which parts of a softmax are put together.
#pragma once
#include <cmath>
#include <cstdint>

#include "engine/kernels/cuda/attention_plan.h"
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/cuda/kv_layout.h"

namespace folio::cuda {

// All pointers are to device memory. q and out: [token][num_heads][head_dim] floats, rows at a multiple of 16
// bytes; q has the query scale and log2(e) in it, so that weights are powers of two.
struct AttentionWork {
  KvLayout layout;
  const char* cache = nullptr;
  std::int32_t layer = 0;
  std::int32_t num_heads = 0;  // 1 to 16 for each KV head
  std::int32_t head_dim = 0;   // of q and out, a multiple of 8; layout.head_dim, the next that kernels have, or less
  std::int32_t window = 0;     // 0: none
  std::int32_t fold_keys = 0;  // of the plan
  const float* q = nullptr;
  float* out = nullptr;
  const std::int32_t* positions = nullptr;  // [token]
  const std::int32_t* block_ids = nullptr;  // the step's
  // The plan: AttentionPlanLayout.
  const std::int32_t* counts = nullptr;
  const AttentionItem* tile_items = nullptr;
  const AttentionItem* row_items = nullptr;
  const AttentionMerge* merges = nullptr;
  const std::int32_t* merged_partials = nullptr;
  const std::int32_t* rows = nullptr;
  // [partial][num_heads][layout.head_dim] weighted sums of V, and their {maximum, sum of weights}.
  float* partial_out = nullptr;
  float2* partial_state = nullptr;

  FOLIO_HOST_DEVICE std::int32_t group() const { return num_heads / layout.num_kv_heads; }
  // In floats.
  FOLIO_DEVICE std::size_t row_offset(std::int32_t token, std::int32_t head) const {
    return state_offset(token, head) * static_cast<std::size_t>(head_dim);
  }
  FOLIO_DEVICE std::size_t partial_offset(std::int32_t partial, std::int32_t head) const {
    return state_offset(partial, head) * static_cast<std::size_t>(layout.head_dim);
  }
  FOLIO_DEVICE std::size_t state_offset(std::int32_t partial, std::int32_t head) const {
    return static_cast<std::size_t>(partial) * static_cast<std::size_t>(num_heads) + static_cast<std::size_t>(head);
  }
};

// The weights of some keys: 2^(score - max), and their sum. Without a key: {-infinity, 0}.
struct SoftmaxState {
  float max = -INFINITY;
  float sum = 0.0F;
};

struct FoldScales {
  float before = 1.0F;
  float added = 0.0F;
  // Of a weighted sum of V. The same operations wherever parts meet: the results are equal to the bit.
  FOLIO_DEVICE float fold(float out_before, float out_added) const {
    return fmaf(out_before, before, out_added * added);
  }
};

// Adds the keys of `added` to `state`.
FOLIO_DEVICE FoldScales fold_state(SoftmaxState& state, SoftmaxState added) {
  if (added.max == -INFINITY) return {};
  const float max = fmaxf(state.max, added.max);
  const FoldScales scales{exp2_fast(state.max - max), exp2_fast(added.max - max)};
  state = {max, scales.fold(state.sum, added.sum)};
  return scales;
}

// What a weighted sum is multiplied by in the end; a row that sees no key gets zeros.
FOLIO_DEVICE float inverse_sum(SoftmaxState state) {
  return state.sum > 0.0F ? 1.0F / state.sum : 0.0F;
}

// What weights are relative to: no maximum must not give infinity - infinity.
FOLIO_DEVICE float finite_max(float max) {
  return max == -INFINITY ? 0.0F : max;
}

FOLIO_DEVICE int smaller(int a, int b) {
  return a < b ? a : b;
}
FOLIO_DEVICE int larger(int a, int b) {
  return a > b ? a : b;
}

}  // namespace folio::cuda
