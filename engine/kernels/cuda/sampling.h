// Sampling on the device: rows of logits to token ids by the rules of engine/sampling/sampler.h, so that only ids cross
// the bus. The weights and the kept sets are the host's; sums are exact integers here and rounded there, so the two
// differ only where a sum meets its goal within about 1e-8. What changes logits (bias, penalties, masks) is the host's
// work, and so are log probabilities (step_results.h).
#pragma once
#include <cstddef>

#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/sampling_math.h"
#include "engine/sampling/sampler.h"

namespace folio::cuda {

struct SampleRow {
  std::int32_t logit_row = -1;  // negative: nothing to sample, its id is -1
  float temperature = 0.0F;     // 0: greedy
  std::int32_t top_k = 0;       // 0: off
  float top_p = 1.0F;           // 1: off
  float min_p = 0.0F;           // 0: off
  double uniform = 0.0;         // the random number, in [0, 1)
};

// Whether the device can do it. REQUIRES for make_sample_row().
bool samples_on_device(const SampleRequest& request, std::int32_t vocab_size);
SampleRow make_sample_row(const SampleRequest& request, std::int32_t vocab_size);

// Pointers are of the device.
struct SampleRows {
  const float* logits = nullptr;    // [..][vocab_size], at a multiple of 16 bytes
  std::int32_t vocab_size = 0;      // at most kMaxSampledVocab
  const SampleRow* rows = nullptr;  // [num_rows]
  void* workspace = nullptr;        // sample_workspace_bytes()
  std::int32_t* ids = nullptr;      // [num_rows]; -1 where no logit is above -infinity
};
std::size_t sample_workspace_bytes(std::int32_t num_rows, std::int32_t vocab_size);
// Two launches: the best of slices of the rows, then one CTA a row.
void sample_rows(const SampleRows& work, std::int32_t num_rows, cudaStream_t stream);

}  // namespace folio::cuda
