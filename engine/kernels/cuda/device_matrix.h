// Weights on the device: in their file's own bits for products of a few rows, and as bf16 for those of many and for the
// table of embeddings.
#pragma once
#include <memory>

#include "base/thread_pool.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/device_memory.h"
#include "engine/kernels/cuda/launch.h"
#include "engine/kernels/cuda/quant_matrix.h"

namespace folio::cuda {

class DeviceMatrix final : public WeightMatrix {
 public:
  // `keep_quant`: integer formats keep their own form beside bf16. Waits for the device: the tensor is not needed
  // afterwards. Throws std::runtime_error naming the tensor.
  DeviceMatrix(const GgufTensor& tensor, bool keep_quant, ThreadPool& pool, const Stream& stream);

  bool has_quant() const { return quant_.low != nullptr; }
  const QuantMatrix& quant() const { return quant_; }
  const __nv_bfloat16* bf16() const { return bf16_memory_.get<__nv_bfloat16>(); }  // [columns][depth]

 private:
  QuantMatrix quant_;
  DeviceMemory quant_memory_;
  DeviceMemory bf16_memory_;
};

// What DeviceMatrix takes, for plans of memory.
struct DeviceMatrixBytes {
  std::size_t kept = 0;
  std::size_t while_loaded = 0;
};
DeviceMatrixBytes device_matrix_bytes(TensorType type, std::int32_t depth, std::int32_t columns, bool keep_quant);

}  // namespace folio::cuda
