// Which kernel multiplies: few rows meet the weights in their own bits (quant_dot.h), many meet them as bf16 through
// cuBLASLt. Deterministic: always the latter, so that a row does not depend on how many there are.
#pragma once
#include <cstdint>
#include <span>

#include "engine/kernels/cuda/blas_matmul.h"
#include "engine/kernels/cuda/device_matrix.h"
#include "engine/kernels/cuda/device_memory.h"
#include "engine/kernels/cuda/row_outputs.h"

namespace folio::cuda {

// Rows in the forms that products read, [rows][columns].
class ProductInput {
 public:
  ProductInput(std::int32_t max_rows, std::int32_t max_columns, const std::string& purpose);
  RowOutputs outputs(std::int32_t columns, bool wants_bf16, bool wants_quant) const;

 private:
  DeviceMemory bf16_, values_, groups_;
};

// out (+)= input * matrix^T + bias, on the device.
struct Product {
  const DeviceMatrix* matrix = nullptr;
  const float* bias = nullptr;
  float* out = nullptr;
};

class Products {
 public:
  Products(bool deterministic, int compute_major, const Stream& stream);

  // The forms in which `rows` rows are wanted by these matrices, all of one depth.
  RowOutputs forms(const ProductInput& input, std::int32_t rows, std::span<const DeviceMatrix* const> matrices) const;
  void multiply(const RowOutputs& input, std::int32_t rows, std::span<const Product> products, bool add);

 private:
  bool uses_quant(std::int32_t rows, const DeviceMatrix& matrix) const;

  const bool deterministic_;
  const Stream& stream_;
  DeviceMemory workspace_;
  BlasMatmul blas_;
};

}  // namespace folio::cuda
