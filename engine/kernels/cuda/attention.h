// Attention of one layer over the paged cache, by the plan of the step (attention_plan.h): up to three launches, items
// of tiles, items of decodes, and the merges of both.
//
// Head sizes of the cache 64, 80, 96, 128 and 256, of the queries these or less; groups of 1 to 16 query heads; blocks
// of any multiple of 16 tokens. Queries and weights are rounded to what the tensor cores multiply: bf16 for a bf16
// cache, f16 for all others, whose elements of one byte are multiplied by their scales before; decodes of groups below
// 4 stay in float. Sums are float. Nothing is read of keys that no token of an item sees.
#pragma once
#include "engine/kernels/cuda/attention_work.h"
#include "engine/kernels/cuda/launch.h"

namespace folio::cuda {

// Sets the plan's part of `work`. plan: [AttentionPlanLayout(extent).size] at a multiple of 16 bytes; workspace:
// attention_workspace_floats(...), likewise. Both on the device.
void use_plan(AttentionWork& work, const std::int32_t* plan, const AttentionExtent& extent, float* workspace);

// Work after use_plan with this extent. Rows of tokens that the plan does not name are left as they are.
// Throws std::invalid_argument for a head size or a group without kernel.
void attend(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream);

}  // namespace folio::cuda
