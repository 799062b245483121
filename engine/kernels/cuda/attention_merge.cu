#include "engine/kernels/cuda/attention_merge.h"

#include "engine/kernels/cuda/attention_kv.h"

namespace folio::cuda {
namespace {

constexpr int kWarps = 4;  // a head each
constexpr int kAhead = 4;  // partials that are read before they are added

FOLIO_DEVICE int head_groups(const AttentionWork& work) {
  return (work.num_heads + kWarps - 1) / kWarps;
}

// Four dimensions of one head.
FOLIO_DEVICE float4 merge_column(const AttentionWork& work, const std::int32_t* partials, int count, int head,
                                 int column) {
  SoftmaxState state;
  float4 out{0.0F, 0.0F, 0.0F, 0.0F};
  for (int first = 0; first < count; first += kAhead) {
    float4 added[kAhead];
    SoftmaxState states[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= count) continue;
      const int partial = partials[first + i];
      const float2 of_partial = work.partial_state[work.state_offset(partial, head)];
      states[i] = {of_partial.x, of_partial.y};
      added[i] = bits_as<float4>(load_16(work.partial_out + work.partial_offset(partial, head) + column));
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (first + i >= count) continue;
      const FoldScales scales = fold_state(state, states[i]);
      out = {scales.fold(out.x, added[i].x), scales.fold(out.y, added[i].y), scales.fold(out.z, added[i].z),
             scales.fold(out.w, added[i].w)};
    }
  }
  const float finish = inverse_sum(state);
  return {out.x * finish, out.y * finish, out.z * finish, out.w * finish};
}

FOLIO_KERNEL(kWarps* kWarpSize) merge_partials_kernel(AttentionWork work) {
  const int index = static_cast<int>(blockIdx.x) / head_groups(work);
  if (index >= work.counts[kCountMerges]) return;
  const AttentionMerge merge = work.merges[index];
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int head = static_cast<int>(blockIdx.x) % head_groups(work) * kWarps + warp;
  if (head < work.num_heads) {
    float* to = work.out + work.row_offset(merge.token, head);
    for (int column = static_cast<int>(threadIdx.x) % kWarpSize * 4; column < work.head_dim; column += kWarpSize * 4) {
      const float4 out = merge_column(work, work.merged_partials + merge.first, merge.count, head, column);
      store_16(to + column, bits_as<uint4>(out));
    }
  }
}

}  // namespace

void merge_partials(const AttentionWork& work, std::int32_t max_merges, cudaStream_t stream) {
  const int groups = (work.num_heads + kWarps - 1) / kWarps;
  launch("merging of attention", merge_partials_kernel,
         {dim3(static_cast<unsigned>(max_merges * groups)), kWarps * kWarpSize, 0, stream}, work);
}

}  // namespace folio::cuda
