// What the two decode kernels share: the rows of an item are the query heads of one token that read one KV head, up to
// 16; the warps of its CTA take every kWarps-th run of 16 keys each, through rings of their own, so that nothing but
// the end waits for another warp; there what the warps have is put together through shared memory. Every key of the
// item is visible to its token: the plan's range is the mask.
#pragma once
#include "engine/kernels/cuda/attention_kv.h"

namespace folio::cuda {

template <KvElement kElement, int kDim>
struct RowsShape {
  static constexpr int kWarps = kDim > 128 ? 2 : 4;
  static constexpr int kThreads = kWarps * kWarpSize;
  static constexpr int kSlots = 4;
};

// Floats of a row of sums in shared memory: 8 more, so that the rows that a warp writes at a time meet no bank twice.
template <int kDim>
inline constexpr int kSumsPitch = kDim + 8;

// The warps' weighted sums [kWarps][rows][kSumsPitch] and states [kWarps][rows], in shared memory after a barrier,
// become the item's result.
template <int kDim, int kWarps>
FOLIO_DEVICE void write_rows(const AttentionWork& work, const AttentionItem& item, int kv_head, const float* sums,
                             const SoftmaxState* states) {
  const int rows = work.group();
  const int token = work.rows[item.first_row];
  for (int i = static_cast<int>(threadIdx.x); i < rows * (kDim / 4); i += kWarps * kWarpSize) {
    const int row = i / (kDim / 4);
    const int column = i % (kDim / 4) * 4;
    SoftmaxState state;
    float4 out{0.0F, 0.0F, 0.0F, 0.0F};
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const FoldScales scales = fold_state(state, states[warp * rows + row]);
      const auto added = bits_as<float4>(load_16(sums + (warp * rows + row) * kSumsPitch<kDim> + column));
      out = {scales.fold(out.x, added.x), scales.fold(out.y, added.y), scales.fold(out.z, added.z),
             scales.fold(out.w, added.w)};
    }
    const int head = kv_head * rows + row;
    if (item.first_partial < 0) {
      const float finish = inverse_sum(state);
      out = {out.x * finish, out.y * finish, out.z * finish, out.w * finish};
      if (column < work.head_dim) store_16(work.out + work.row_offset(token, head) + column, bits_as<uint4>(out));
    } else {
      store_16(work.partial_out + work.partial_offset(item.first_partial, head) + column, bits_as<uint4>(out));
      if (column == 0) work.partial_state[work.state_offset(item.first_partial, head)] = {state.max, state.sum};
    }
  }
}

}  // namespace folio::cuda
