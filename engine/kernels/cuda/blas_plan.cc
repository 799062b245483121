#include "engine/kernels/cuda/blas_plan.h"

#include <algorithm>
#include <bit>

namespace folio::cuda {
namespace {

constexpr std::int32_t kFewestRows = 16;
constexpr std::int32_t kRowStep = 256;
// Between decode steps and prefill chunks: the one row count that `deterministic` chooses all algorithms for.
constexpr std::int32_t kDeterministicRows = 128;

}  // namespace

ColumnMajorProduct column_major(const MatmulShape& shape) {
  return {shape.columns, shape.rows, shape.depth, shape.depth, shape.depth, shape.columns};
}

std::int32_t rows_bucket(std::int32_t rows, bool deterministic) {
  if (deterministic) return kDeterministicRows;
  if (rows > kRowStep) return (rows + kRowStep - 1) / kRowStep * kRowStep;
  return static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(std::max(rows, kFewestRows))));
}

AlgorithmKey algorithm_key(const MatmulShape& shape, bool bias, bool deterministic) {
  return {rows_bucket(shape.rows, deterministic), shape.columns, shape.depth, bias};
}

std::size_t blas_workspace_bytes(int compute_major) {
  return (compute_major >= 9 ? std::size_t{32} : std::size_t{4}) << 20U;
}

bool may_run(const AlgorithmTraits& traits, std::size_t workspace_bytes, bool deterministic) {
  if (traits.workspace_bytes > workspace_bytes) return false;
  return !deterministic || (traits.split_k <= 1 && traits.reduction_scheme == 0);
}

}  // namespace folio::cuda
