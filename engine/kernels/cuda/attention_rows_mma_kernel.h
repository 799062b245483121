// Decode attention on the tensor cores, for groups of 4 query heads and more: see attention_rows.h. Rows past the group
// are zeros, whose products cost nothing that memory would not.
#pragma once
#include "engine/kernels/cuda/attention_mma.h"
#include "engine/kernels/cuda/attention_rows.h"

namespace folio::cuda {

template <KvElement kElement, int kDim>
struct RowsMmaShape : RowsShape<kElement, kDim> {
  using Base = RowsShape<kElement, kDim>;
  static constexpr int kPitch = kHasScales<kElement> ? kStoredRowBytes<kElement, kDim> : kMmaPitch<kDim>;
  using Ring = KvRing<kElement, kDim, kPitch, kRun, Base::kWarps * kRun, kWarpSize, Base::kSlots>;
  static constexpr int kQueryBytes = kWarpRows * kMmaPitch<kDim>;
  static constexpr int kConvertedBytes = kHasScales<kElement> ? kRun * kMmaPitch<kDim> : 0;
  static constexpr int kWarpBytes = Base::kSlots * Ring::kSlotBytes + kConvertedBytes;
  static constexpr int kSharedBytes = kQueryBytes + Base::kWarps * kWarpBytes;
  // In the end the same memory holds what write_rows reads.
  static_assert(kWarpBytes >= kWarpRows * (kSumsPitch<kDim> * 4 + static_cast<int>(sizeof(SoftmaxState))));
};

template <class Mma, int kDim>
FOLIO_DEVICE void stage_row_queries(const AttentionWork& work, int token, int kv_head, char* to) {
  const int group = work.group();
  for (int i = static_cast<int>(threadIdx.x); i < kWarpRows * (kDim / 4); i += static_cast<int>(blockDim.x)) {
    const int row = i / (kDim / 4);
    const int column = i % (kDim / 4) * 4;
    uint2 packed{0, 0};
    if (row < group && column < work.head_dim) {
      const auto q = bits_as<float4>(load_16(work.q + work.row_offset(token, kv_head * group + row) + column));
      packed = {pack<Mma>(q.x, q.y), pack<Mma>(q.z, q.w)};
    }
    *reinterpret_cast<uint2*>(to + row * kMmaPitch<kDim> + column * 2) = packed;
  }
}

template <KvElement kElement, int kDim>
FOLIO_KERNEL((RowsMmaShape<kElement, kDim>::kThreads))
attend_rows_mma_kernel(AttentionWork work) {
  using Shape = RowsMmaShape<kElement, kDim>;
  using Mma = typename KvType<kElement>::Mma;
  using Ring = typename Shape::Ring;
  const int index = static_cast<int>(blockIdx.x) / work.layout.num_kv_heads;  // KV heads lie side by side in a block
  if (index >= work.counts[kCountRowItems]) return;
  const int kv_head = static_cast<int>(blockIdx.x) % work.layout.num_kv_heads;
  const AttentionItem item = work.row_items[index];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  SharedArena arena;
  char* queries = arena.take<char>(Shape::kQueryBytes);
  char* warps = arena.take<char>(Shape::kWarps * Shape::kWarpBytes);

  char* slots = warps + warp * Shape::kWarpBytes;
  char* converted = slots + Shape::kSlots * Ring::kSlotBytes;
  const int first_key = item.key_begin / kRun * kRun + warp * kRun;
  Ring ring(work, item, kv_head, slots, first_key, 0, lane);
  ring.start();
  stage_row_queries<Mma, kDim>(work, work.rows[item.first_row], kv_head, queries);
  sync_cta();
  const QueryFragments<Mma, kDim> fragments(queries);
  const VisibleKeys visible{{item.key_begin, item.key_begin}, {item.key_end - 1, item.key_end - 1}};
  WarpAttention<Mma, kDim, kRun> attention;
  const auto next_matrix = [&](int key) -> const char* {
    wait_copies<Shape::kSlots - 2>();
    sync_warp();  // it has landed for all lanes, and none reads the matrix before it any more
    const char* slot = ring.next();
    if constexpr (!kHasScales<kElement>) {
      return slot;
    } else {
      convert_rows<kElement, kDim>(converted, slot, Ring::scales(slot), kRun, key, item, lane, kWarpSize);
      sync_warp();
      return converted;
    }
  };
  for (int key = first_key; key < item.key_end; key += Shape::kWarps * kRun) {
    attention.score(fragments, next_matrix(key));
    attention.weigh(key, visible);
    attention.add_values(next_matrix(key));
  }

  wait_copies<0>();
  sync_cta();  // the rings' memory is free
  const int group = work.group();
  auto* sums = reinterpret_cast<float*>(warps);
  auto* states = reinterpret_cast<SoftmaxState*>(sums + Shape::kWarps * group * kSumsPitch<kDim>);
  const SoftmaxState both[2] = {attention.state(0), attention.state(1)};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = half * 8 + lane / 4;
    if (row >= group) continue;
    float* to = sums + (warp * group + row) * kSumsPitch<kDim> + lane % 4 * 2;
#pragma unroll
    for (int column = 0; column < kDim / 8; ++column) {
      *reinterpret_cast<float2*>(to + column * 8) = attention.out(half, column);
    }
    if (lane % 4 == 0) states[warp * group + row] = both[half];
  }
  sync_cta();
  write_rows<kDim, Shape::kWarps>(work, item, kv_head, sums, states);
}

}  // namespace folio::cuda
