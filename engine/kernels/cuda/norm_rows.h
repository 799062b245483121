// The residual stream between two products: x += norm(projected), then norm(x) in the form that the next product reads.
// One pass over memory for both. A row's result is a function of that row alone.
#pragma once
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/row_outputs.h"

namespace folio::cuda {

// RMSNorm: row / sqrt(mean of its squares + epsilon) * weight. Zhang, Sennrich, arXiv:1910.07467.
struct DeviceNorm {
  const float* weight = nullptr;  // [columns], on the device; null: no norm
  float epsilon = 0.0F;
};

inline constexpr std::int32_t kMaxNormColumns = 16384;  // a thread keeps its share of a row in registers

// Pointers are of the device, rows begin at multiples of 16 bytes.
struct NormRows {
  std::int32_t columns = 0;            // a multiple of 4, at most kMaxNormColumns
  float* x = nullptr;                  // [..][columns]; written only when something is added
  const std::int32_t* rows = nullptr;  // [num_rows] rows of x; null: 0 .. num_rows - 1. Distinct when written.

  const float* projected = nullptr;  // [num_rows][columns], added to x; null: nothing is
  DeviceNorm projected_norm = {};    // of `projected`, before

  DeviceNorm norm = {};  // of x, for `out`
  RowOutputs out = {};   // [num_rows][columns]
};
void norm_rows(const NormRows& work, std::int32_t num_rows, cudaStream_t stream);

}  // namespace folio::cuda
