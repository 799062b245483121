// Products of a few rows with quantised matrices, as decode steps have them: the weights are read once, in their own 4
// to 8 bits, and meet int8 activations in dp4a.
//
// A value out[r][c] is one sum in one order, a function of that row, that column and the depth alone: not of the other
// rows, their number or what else the launch computes. Lane l of warp w of a column's `warps` (1, 2 or 4, by the depth)
// takes the groups l + 32 w + 32 warps i in order,
//   sum = fma(float(dot), weight scale * row scale, sum), then with a minimum
//   sum = fma(minimum, row scale * sum of the row's integers, sum)
// with dot exact in 32-bit integers (Q6_K: a term for each half of the group); lanes meet in a tree over lane distances
// 16, 8, 4, 2, 1, warps in order.
#pragma once
#include <span>

#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/quant_matrix.h"

namespace folio::cuda {

inline constexpr std::int32_t kMaxQuantDotRows = 8;
inline constexpr std::size_t kMaxQuantDotProducts = 4;

// out[r][c] (+)= x[r] * matrix column c + bias[c]. All on the device.
struct QuantProduct {
  QuantMatrix matrix;
  const float* bias = nullptr;  // [columns] or null
  float* out = nullptr;         // [rows][columns], row r at out + r * out_stride
  std::int64_t out_stride = 0;  // in floats
  bool add = false;             // to what is there
};

// 1 to kMaxQuantDotProducts products of any formats that share an input of 1 to kMaxQuantDotRows rows, in one launch.
// Their outputs do not overlap.
void quant_dot(const QuantRows& x, std::int32_t rows, std::span<const QuantProduct> products, cudaStream_t stream);

}  // namespace folio::cuda
