// What is decided about a product before cuBLASLt is asked. No device and no library: plain functions.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>

namespace folio::cuda {

// out [rows][columns] = x [rows][depth] * weights [columns][depth]^T, all rows contiguous.
struct MatmulShape {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  std::int32_t depth = 0;
};

// The same product as a column-major library sees it: d (m by n) = a^T b, where a row-major matrix is its own transpose
// with the row length as leading dimension: a is the weights, b is x, d is out.
struct ColumnMajorProduct {
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t lda = 0, ldb = 0, ldd = 0;
};
ColumnMajorProduct column_major(const MatmulShape& shape);

// Row counts that share an algorithm: at most 16; else a power of two up to 256, then a multiple of 256. With
// `deterministic` all do, so that a row's sum does not depend on how many rows there are.
std::int32_t rows_bucket(std::int32_t rows, bool deterministic);

// What an algorithm is chosen by. `rows` is a bucket.
struct AlgorithmKey {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  std::int32_t depth = 0;
  bool bias = false;
  auto operator<=>(const AlgorithmKey&) const = default;
};
AlgorithmKey algorithm_key(const MatmulShape& shape, bool bias, bool deterministic);

// The workspace to give to BlasMatmul on a device of this compute capability: 32 MiB from 9.0 on, else 4 MiB (the
// sizes that NVIDIA's documentation of cuBLAS recommends).
std::size_t blas_workspace_bytes(int compute_major);

// May an algorithm be used with `deterministic`? Only one that sums the depth in one sequence.
struct AlgorithmTraits {
  std::int32_t split_k = 1;            // parts of the depth
  std::uint32_t reduction_scheme = 0;  // 0: none
  std::size_t workspace_bytes = 0;     // that it wants
};
bool may_run(const AlgorithmTraits& traits, std::size_t workspace_bytes, bool deterministic);

}  // namespace folio::cuda
