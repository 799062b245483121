#include "engine/kernels/cuda/products.h"

#include <array>

#include "base/check.h"
#include "engine/kernels/cuda/quant_dot.h"

namespace folio::cuda {

ProductInput::ProductInput(std::int32_t max_rows, std::int32_t max_columns, const std::string& purpose) {
  const std::size_t values = static_cast<std::size_t>(max_rows) * static_cast<std::size_t>(max_columns);
  bf16_ = DeviceMemory(values * sizeof(__nv_bfloat16), purpose);
  const std::size_t few = kMaxQuantDotRows * (static_cast<std::size_t>(max_columns) + kQuantGroup);
  values_ = DeviceMemory(few, purpose);
  groups_ = DeviceMemory(few / kQuantGroup * sizeof(float2), purpose);
}

RowOutputs ProductInput::outputs(std::int32_t columns, bool wants_bf16, bool wants_quant) const {
  RowOutputs out;
  if (wants_bf16) out.bf16 = bf16_.get<__nv_bfloat16>();
  if (wants_quant) out.quant = {values_.get<std::int8_t>(), groups_.get<float2>(), columns};
  return out;
}

Products::Products(bool deterministic, int compute_major, const Stream& stream)
    : deterministic_(deterministic),
      stream_(stream),
      workspace_(blas_workspace_bytes(compute_major), "the workspace of products"),
      blas_(workspace_.get(), workspace_.bytes(), deterministic) {}

bool Products::uses_quant(std::int32_t rows, const DeviceMatrix& matrix) const {
  return !deterministic_ && rows <= kMaxQuantDotRows && matrix.has_quant();
}

RowOutputs Products::forms(const ProductInput& input, std::int32_t rows,
                           std::span<const DeviceMatrix* const> matrices) const {
  bool bf16 = false;
  bool quant = false;
  for (const DeviceMatrix* matrix : matrices) (uses_quant(rows, *matrix) ? quant : bf16) = true;
  return input.outputs(matrices.front()->depth(), bf16, quant);
}

void Products::multiply(const RowOutputs& input, std::int32_t rows, std::span<const Product> products, bool add) {
  std::array<QuantProduct, kMaxQuantDotProducts> few;
  std::size_t num_few = 0;
  for (const Product& product : products) {
    const DeviceMatrix& matrix = *product.matrix;
    if (uses_quant(rows, matrix)) {
      FOLIO_CHECK(num_few < few.size(), "no more products in a launch");
      few[num_few++] = {matrix.quant(), product.bias, product.out, matrix.columns(), add};
      continue;
    }
    const MatmulShape shape{rows, matrix.columns(), matrix.depth()};
    blas_.multiply({input.bf16, matrix.bf16(), product.bias, product.out, shape, add}, stream_.get());
  }
  if (num_few > 0) quant_dot(input.quant, rows, {few.data(), num_few}, stream_.get());
}

}  // namespace folio::cuda
