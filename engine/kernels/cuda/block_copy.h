// Copies of whole blocks inside the KV cache, for copy-on-write.
#pragma once
#include "engine/kernels/cuda/kv_layout.h"
#include "engine/kernels/cuda/launch.h"

namespace folio::cuda {

// Both on the device: [num_copies] pairs {from, to}. No block is written twice, and none is both written and read.
void copy_blocks(const KvLayout& layout, void* cache, const int2* copies, std::int32_t num_copies, cudaStream_t stream);

}  // namespace folio::cuda
