#include "engine/kernels/cuda/device_matrix.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "engine/kernels/cuda/bf16_weights.h"

namespace folio::cuda {
namespace {

constexpr std::int32_t kDepthUnit = 8;    // 16 bytes of bf16: what copies, products and row kernels move at a time
constexpr std::int32_t kColumnsUnit = 4;  // 16 bytes of an output row

std::int32_t dimension(const GgufTensor& tensor, std::size_t i) {
  return i < tensor.shape.size() ? static_cast<std::int32_t>(tensor.shape[i]) : 1;
}

void check_shape(const GgufTensor& tensor) {
  const std::int32_t depth = dimension(tensor, 0);
  if (depth % kDepthUnit == 0 && dimension(tensor, 1) % kColumnsUnit == 0) return;
  throw std::runtime_error("tensor " + std::string(tensor.name) + " has shape [" + std::to_string(depth) + ", " +
                           std::to_string(dimension(tensor, 1)) + "]: the CUDA backend wants multiples of " +
                           std::to_string(kDepthUnit) + " and " + std::to_string(kColumnsUnit));
}

}  // namespace

DeviceMatrix::DeviceMatrix(const GgufTensor& tensor, bool keep_quant, ThreadPool& pool, const Stream& stream)
    : WeightMatrix(dimension(tensor, 0), dimension(tensor, 1)) {
  check_shape(tensor);
  const std::string purpose = "tensor " + std::string(tensor.name);
  const std::size_t values = static_cast<std::size_t>(depth()) * static_cast<std::size_t>(columns());
  bf16_memory_ = DeviceMemory(values * sizeof(__nv_bfloat16), purpose);
  if (!has_quant_form(tensor.type)) {
    std::vector<std::uint16_t> rows(values);
    bf16_rows(tensor, pool, rows);
    stream.upload(bf16_memory_.get(), rows.data(), rows.size() * sizeof(rows[0]));
    stream.wait();
    return;
  }
  std::vector<std::byte> planes(quant_matrix_bytes(tensor.type, depth(), columns()));
  pack_quant_matrix(tensor, pool, planes);
  quant_memory_ = DeviceMemory(planes.size(), purpose);
  stream.upload(quant_memory_.get(), planes.data(), planes.size());
  quant_ = quant_matrix(tensor.type, depth(), columns(), quant_memory_.get());
  bf16_weights(quant_, bf16_memory_.get<__nv_bfloat16>(), stream.get());
  stream.wait();
  if (keep_quant) return;
  quant_ = {};
  quant_memory_ = {};
}

DeviceMatrixBytes device_matrix_bytes(TensorType type, std::int32_t depth, std::int32_t columns, bool keep_quant) {
  const std::size_t values = static_cast<std::size_t>(depth) * static_cast<std::size_t>(columns);
  const std::size_t bf16 = mapped_bytes(values * sizeof(__nv_bfloat16));
  const std::size_t quant = has_quant_form(type) ? mapped_bytes(quant_matrix_bytes(type, depth, columns)) : 0;
  return {keep_quant ? bf16 + quant : bf16, bf16 + quant};
}

}  // namespace folio::cuda
