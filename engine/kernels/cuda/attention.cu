#include "engine/kernels/cuda/attention.h"

#include <stdexcept>

#include "engine/kernels/cuda/attention_merge.h"
#include "engine/kernels/cuda/attention_types.h"

namespace folio::cuda {

void use_plan(AttentionWork& work, const std::int32_t* plan, const AttentionExtent& extent, float* workspace) {
  const AttentionPlanLayout layout(extent);
  work.counts = plan + layout.counts;
  work.tile_items = reinterpret_cast<const AttentionItem*>(plan + layout.tile_items);
  work.row_items = reinterpret_cast<const AttentionItem*>(plan + layout.row_items);
  work.merges = reinterpret_cast<const AttentionMerge*>(plan + layout.merges);
  work.merged_partials = plan + layout.merged_partials;
  work.rows = plan + layout.rows;
  work.partial_out = workspace;
  const auto rows = static_cast<std::size_t>(extent.partials) * static_cast<std::size_t>(work.num_heads);
  work.partial_state = reinterpret_cast<float2*>(workspace + rows * static_cast<std::size_t>(work.layout.head_dim));
}

void attend(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream) {
  if (work.group() < 1 || work.group() > 16 || work.num_heads % work.layout.num_kv_heads != 0) {
    throw std::invalid_argument("attention wants 1 to 16 query heads for each KV head");
  }
  switch (work.layout.element) {
    case KvElement::kF16:
      attend_f16(work, extent, stream);
      break;
    case KvElement::kBF16:
      attend_bf16(work, extent, stream);
      break;
    case KvElement::kInt8:
      attend_int8(work, extent, stream);
      break;
    case KvElement::kFp8:
      attend_fp8(work, extent, stream);
      break;
  }
  merge_partials(work, extent.merges, stream);
}

}  // namespace folio::cuda
