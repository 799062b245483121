// Partial results of a token become its output: FlashDecoding's second step, by sums of weights rather than their
// logarithms.
#pragma once
#include "engine/kernels/cuda/attention_work.h"
#include "engine/kernels/cuda/launch.h"

namespace folio::cuda {

// Merges that the plan does not have leave at once.
void merge_partials(const AttentionWork& work, std::int32_t max_merges, cudaStream_t stream);

}  // namespace folio::cuda
