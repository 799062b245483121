// Starts the attention kernels of one element type and head size: attention_<type>.cu is the list of those there are.
#pragma once
#include <stdexcept>
#include <string>

#include "engine/kernels/cuda/attention_rows_fma_kernel.h"
#include "engine/kernels/cuda/attention_rows_mma_kernel.h"
#include "engine/kernels/cuda/attention_tiles_kernel.h"
#include "engine/kernels/cuda/attention_types.h"

namespace folio::cuda {

inline constexpr int kSmallestMmaGroup = 4;       // below, plain FMA
inline constexpr int kSmallestShared = 99 << 10;  // that a CTA may have on any device from sm_80 on

template <KvElement kElement, int kDim>
void attend_items(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream) {
  const auto ctas = [&work](std::int32_t items) {
    return dim3(static_cast<unsigned>(items * work.layout.num_kv_heads));
  };
  using Tiles = TilesShape<kElement, kDim>;
  static_assert(Tiles::kSharedBytes <= kSmallestShared);
  launch("attention of tiles", attend_tiles_kernel<kElement, kDim>,
         {ctas(extent.tile_items), Tiles::kThreads, Tiles::kSharedBytes, stream}, work);
  if (work.group() >= kSmallestMmaGroup) {
    using Rows = RowsMmaShape<kElement, kDim>;
    static_assert(Rows::kSharedBytes <= kSmallestShared);
    launch("decode attention", attend_rows_mma_kernel<kElement, kDim>,
           {ctas(extent.row_items), Rows::kThreads, Rows::kSharedBytes, stream}, work);
  } else {
    using Rows = RowsFmaShape<kElement, kDim>;
    static_assert(Rows::kSharedBytes <= kSmallestShared);
    launch("decode attention", attend_rows_fma_kernel<kElement, kDim>,
           {ctas(extent.row_items), Rows::kThreads, Rows::kSharedBytes, stream}, work);
  }
}

}  // namespace folio::cuda
