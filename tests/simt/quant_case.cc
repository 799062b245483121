#include "tests/simt/quant_case.h"

#include <array>
#include <cmath>

#include "engine/gguf/unpack_quants.h"
#include "engine/kernels/cpu/isa.h"

namespace folio::cuda {

QuantCaseMatrix::QuantCaseMatrix(const GgufTensor& tensor) {
  ThreadPool pool(1);
  const auto depth = static_cast<std::int32_t>(tensor.row_length());
  const auto columns = static_cast<std::int32_t>(tensor.num_rows());
  std::vector<std::byte> packed(quant_matrix_bytes(tensor.type, depth, columns));
  pack_quant_matrix(tensor, pool, packed);
  planes = std::make_unique<DeviceBuffer<std::byte>>(packed);
  view = quant_matrix(tensor.type, depth, columns, planes->data());
}

QuantCaseRows::QuantCaseRows(std::int32_t r, std::int32_t d, std::mt19937& random) : rows(r), depth(d) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<std::size_t>(r * d));
  for (float& value : x) value = normal(random);
  values.resize(x.size());
  groups.resize(x.size() / 32);
  const auto stride = static_cast<std::size_t>(d);
  cpu::select_kernels("scalar").quantize_rows(x.data(), stride, r, d, {stride, values.data(), groups.data()});
  std::vector<float2> pairs;
  for (const cpu::QuantGroup& group : groups) pairs.push_back({group.scale, group.offset});
  device_values = std::make_unique<DeviceBuffer<std::int8_t>>(values);
  device_groups = std::make_unique<DeviceBuffer<float2>>(pairs);
}

std::vector<float> twin_product(const GgufTensor& tensor, const QuantCaseRows& x) {
  const auto depth = static_cast<std::size_t>(x.depth);
  const std::size_t groups = depth / 32;
  const std::size_t warps = groups <= 32 ? 1 : groups <= 64 ? 2 : 4;
  const std::size_t columns = tensor.num_rows();
  const std::size_t row_bytes = tensor.data.size() / columns;
  const std::size_t parts = tensor.type == TensorType::kQ6_K ? 2 : 1;  // scales of a group
  const QuantShape shape = quant_shape(tensor.type);
  std::vector<std::uint8_t> quants(depth);
  std::vector<float> scales(groups * parts);
  std::vector<float> minima(groups * parts);
  std::vector<float> out(static_cast<std::size_t>(x.rows) * columns);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t row = i / columns;
    unpack_quant_row(tensor.type, tensor.data.subspan(i % columns * row_bytes, row_bytes), quants, scales, minima);
    std::array<std::array<float, 32>, 4> sums{};
    for (std::size_t g = 0; g < groups; ++g) {
      float& sum = sums[g / 32 % warps][g % 32];
      const cpu::QuantGroup& by = x.groups[row * groups + g];
      for (std::size_t part = 0; part < parts; ++part) {
        int dot = 0;
        for (std::size_t k = 32 * g + 32 / parts * part; k < 32 * g + 32 / parts * (part + 1); ++k) {
          dot += (quants[k] - (shape.has_min ? 0 : 1 << (shape.bits - 1))) * x.values[row * depth + k];
        }
        sum = std::fmaf(static_cast<float>(dot), scales[g * parts + part] * by.scale, sum);
      }
      if (shape.has_min) sum = std::fmaf(minima[g], by.offset, sum);
    }
    for (std::size_t w = 0; w < warps; ++w) {
      for (std::size_t distance = 16; distance > 0; distance /= 2) {
        const std::array<float, 32> before = sums[w];
        for (std::size_t lane = 0; lane < 32; ++lane) sums[w][lane] = before[lane] + before[lane ^ distance];
      }
      out[i] = w == 0 ? sums[0][0] : out[i] + sums[w][0];
    }
  }
  return out;
}

std::vector<float> device_product(const QuantCaseMatrix& matrix, QuantCaseRows& x) {
  const std::int32_t columns = matrix.view.columns;
  DeviceBuffer<float> out(static_cast<std::size_t>(x.rows * columns));
  const QuantProduct product{matrix.view, nullptr, out.data(), columns, false};
  quant_dot(x.view(), x.rows, {&product, 1}, nullptr);
  return out.to_vector();
}

}  // namespace folio::cuda
