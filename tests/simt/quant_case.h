// Products of rows with a quantised matrix on the device, and a plain twin of their documented order.
#pragma once
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "engine/kernels/cpu/kernel_table.h"
#include "engine/kernels/cuda/quant_dot.h"
#include "tests/engine/kernels/test_tensor.h"
#include "tests/simt/either_buffer.h"

namespace folio::cuda {

inline constexpr TensorType kQuantTypes[] = {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ4_K,
                                             TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ5_K,
                                             TensorType::kQ6_K, TensorType::kQ8_0};

struct QuantCaseMatrix {
  std::unique_ptr<DeviceBuffer<std::byte>> planes;
  QuantMatrix view;

  explicit QuantCaseMatrix(const GgufTensor& tensor);
};

// Rows of normal values that were quantised by the CPU.
struct QuantCaseRows {
  std::int32_t rows, depth;
  std::vector<std::int8_t> values;
  std::vector<cpu::QuantGroup> groups;
  std::unique_ptr<DeviceBuffer<std::int8_t>> device_values;
  std::unique_ptr<DeviceBuffer<float2>> device_groups;

  QuantCaseRows(std::int32_t r, std::int32_t d, std::mt19937& random);
  QuantRows view() { return {device_values->data(), device_groups->data(), depth}; }
};

// The order that quant_dot.h states, written plainly: [rows][columns].
std::vector<float> twin_product(const GgufTensor& tensor, const QuantCaseRows& x);
std::vector<float> device_product(const QuantCaseMatrix& matrix, QuantCaseRows& x);

}  // namespace folio::cuda
