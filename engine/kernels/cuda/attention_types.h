// The attention kernels of each type of the cache, a file each so that compilers can work side by side. Items that the
// plan does not have leave at once.
#pragma once
#include "engine/kernels/cuda/attention_work.h"
#include "engine/kernels/cuda/launch.h"

namespace folio::cuda {

void attend_f16(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream);
void attend_bf16(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream);
void attend_int8(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream);
void attend_fp8(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream);

}  // namespace folio::cuda
