// What the row kernels give to the products that follow: the rows as bf16 for the large ones, quantised to int8 for the
// fused ones, or both.
#pragma once
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/cuda/quant_matrix.h"

namespace folio::cuda {

// On the device. 32 neighbouring values share a scale: the largest magnitude / 127; 0 where that is under 1e-30.
struct RowOutputs {
  __nv_bfloat16* bf16 = nullptr;  // [rows][columns], or null
  QuantRows quant = {};           // [rows][columns], columns a multiple of 32; or null
};

}  // namespace folio::cuda
