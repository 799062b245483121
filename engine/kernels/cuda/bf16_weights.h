// A quantised matrix as rows of bf16, for products of many rows (blas_matmul.h) and the embedding's table. Float
// formats get there on the host: bf16_rows() of quant_matrix.h.
#pragma once
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/quant_matrix.h"

namespace folio::cuda {

// out [columns][depth], at a multiple of 16 bytes: the bf16 nearest to dequantize()'s float, ties to even. Equal to the
// bit on any device: scale * integer is exact in float for every format, so that a contraction changes nothing.
void bf16_weights(const QuantMatrix& matrix, __nv_bfloat16* out, cudaStream_t stream);

}  // namespace folio::cuda
