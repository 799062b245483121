// The fused quantised product and the expansion to bf16: exact against an independent implementation's values, equal to
// the bit to a plain twin of the documented order, and near a double product and the CPU's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <random>
#include <vector>

#include "engine/kernels/cpu/isa.h"
#include "engine/kernels/cpu/packed_matrix.h"
#include "engine/kernels/cuda/bf16_weights.h"
#include "tests/simt/quant_case.h"
#include "tests/simt/runner.h"
#include "tests/support/temp_folder.h"

namespace folio::cuda {
namespace {

using simt::Order;

std::vector<float> cpu_product(const GgufTensor& tensor, QuantCaseRows& x) {
  ThreadPool pool(1);
  const cpu::PackedMatrix matrix(tensor, pool);
  std::vector<float> out(static_cast<std::size_t>(x.rows) * tensor.num_rows());
  cpu::MatmulArgs args{};
  matrix.fill(args);
  args.quantized = {static_cast<std::size_t>(x.depth), x.values.data(), x.groups.data()};
  args.out = out.data();
  args.out_stride = tensor.num_rows();
  cpu::select_kernels("scalar").matmul[static_cast<int>(matrix.format())](args, 0, matrix.num_panels(), 0, x.rows,
                                                                          nullptr);
  return out;
}

// In double, over the weights' values; `size`: the sum of the terms' magnitudes, of a minimum's apart.
void expect_near_double(const cpu::TestTensor& t, const QuantCaseRows& x, const std::vector<float>& got,
                        const std::vector<float>& on_cpu, const std::string& what) {
  const auto depth = static_cast<std::size_t>(x.depth);
  const std::size_t columns = t.values.size() / depth;
  for (std::size_t i = 0; i < got.size(); ++i) {
    double expected = 0;
    double size = 0;
    for (std::size_t k = 0; k < depth; ++k) {
      const std::size_t at = i / columns * depth + k;
      const double activation = static_cast<double>(x.values[at]) * static_cast<double>(x.groups[at / 32].scale);
      const std::size_t group = i % columns * depth + k / 32 * 32;
      const float largest = std::fabs(*std::max_element(t.values.begin() + static_cast<std::ptrdiff_t>(group),
                                                        t.values.begin() + static_cast<std::ptrdiff_t>(group + 32),
                                                        [](float a, float b) { return std::fabs(a) < std::fabs(b); }));
      expected += activation * static_cast<double>(t.values[i % columns * depth + k]);
      size += std::fabs(activation) * static_cast<double>(largest);
    }
    ASSERT_NEAR(got[i], expected, 5e-7 * size) << what << " at " << i;
    ASSERT_NEAR(got[i], on_cpu[i], 1e-6 * size) << what << " at " << i;
  }
}

std::vector<std::int32_t> depths_of(TensorType type) {
  if (tensor_type_info(type).block_elements == 256) return {256, 1280, 2304, 4352};
  return {32, 576, 1056, 2080, 4160};  // 1, 18, 33, 65, 130 groups: 1, 1, 2, 4 warps to a column, and two rounds of 4
}

TEST(QuantDotTest, IsTheStatedSumOverFormatsAndSizes) {
  std::mt19937 random(7);
  for (const TensorType type : kQuantTypes) {
    for (const std::int32_t depth : depths_of(type)) {
      for (std::int32_t rows = 1; rows <= kMaxQuantDotRows; ++rows) {
        const std::int32_t columns = std::array{1, 7, 18}[random() % 3];
        const cpu::TestTensor t = cpu::make_tensor(type, depth, columns, random);
        const QuantCaseMatrix matrix(t.tensor);
        QuantCaseRows x(rows, depth, random);
        const std::vector<float> expected = twin_product(t.tensor, x);
        const std::string what = std::string(tensor_type_info(type).name) + " depth " + std::to_string(depth) +
                                 " columns " + std::to_string(columns) + " rows " + std::to_string(rows);
        simt::in_every_order([&](Order) { ASSERT_EQ(device_product(matrix, x), expected) << what; });
        expect_near_double(t, x, expected, cpu_product(t.tensor, x), what);
      }
    }
  }
}

// The weights themselves: rows that are one in one place give a column's value there, rounded once.
std::vector<float> weights_by_products(const QuantCaseMatrix& matrix) {
  const auto depth = static_cast<std::size_t>(matrix.view.depth);
  const auto columns = static_cast<std::size_t>(matrix.view.columns);
  std::vector<float> weights(columns * depth);
  for (std::size_t first = 0; first < depth; first += 8) {
    std::vector<std::int8_t> values(8 * depth);
    std::vector<float2> groups(8 * depth / 32);
    for (std::size_t r = 0; r < 8; ++r) {
      values[r * depth + first + r] = 1;
      groups[(r * depth + first + r) / 32] = {1.0F, 1.0F};
    }
    DeviceBuffer<std::int8_t> device_values(values);
    DeviceBuffer<float2> device_groups(groups);
    DeviceBuffer<float> out(8 * columns);
    const QuantProduct product{matrix.view, nullptr, out.data(), matrix.view.columns, false};
    quant_dot({device_values.data(), device_groups.data(), matrix.view.depth}, 8, {&product, 1}, nullptr);
    for (std::size_t i = 0; i < out.size(); ++i) weights[i % columns * depth + first + i / columns] = out[i];
  }
  return weights;
}

void expect_bf16(const QuantCaseMatrix& matrix, const std::vector<float>& values, const std::string& what) {
  DeviceBuffer<__nv_bfloat16> out(values.size());
  bf16_weights(matrix.view, out.data(), nullptr);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(static_cast<float>(out[i]), static_cast<float>(__float2bfloat16_rn(values[i]))) << what << ' ' << i;
  }
}

TEST(QuantDotTest, WeightsAreTheReferencesExactly) {
  const auto index = nlohmann::json::parse(testing::read_file("tests/reference/quant_formats.json"));
  const std::string data = testing::read_file("tests/reference/quant_formats.bin");
  int seen = 0;
  for (const auto& entry : index.at("entries")) {
    const TensorTypeInfo* info = find_tensor_type(entry.at("ggml_type_id"));
    if (info == nullptr || !has_quant_form(info->type)) continue;
    ++seen;
    const std::size_t count = entry.at("elements");
    std::vector<std::byte> bytes(entry.at("bytes_length").get<std::size_t>());
    std::memcpy(bytes.data(), data.data() + entry.at("bytes_offset").get<std::size_t>(), bytes.size());
    std::vector<float> values(count);
    std::memcpy(values.data(), data.data() + entry.at("values_offset").get<std::size_t>(), count * sizeof(float));
    const QuantCaseMatrix matrix({"reference", info->type, {256, count / 256}, bytes});
    const std::string what = entry.at("type").get<std::string>() + ' ' + entry.at("vector").get<std::string>();
    EXPECT_EQ(weights_by_products(matrix), values) << what;
    expect_bf16(matrix, values, what);
  }
  EXPECT_EQ(seen, 24) << "eight formats, three vectors each";
}

TEST(QuantDotTest, ExpandsOddMatricesInEveryOrder) {
  std::mt19937 random(11);
  for (const TensorType type : kQuantTypes) {
    const std::int32_t depth = tensor_type_info(type).block_elements == 256 ? 768 : 96;
    const cpu::TestTensor t = cpu::make_tensor(type, depth, 5, random);
    const QuantCaseMatrix matrix(t.tensor);
    simt::in_every_order([&](Order) { expect_bf16(matrix, t.values, tensor_type_info(type).name); });
  }
}

// Query, key and value as files have them: of several formats, with and without bias, into rows of one wider matrix.
TEST(QuantDotTest, ProductsThatShareAnInputAreEachAsAlone) {
  std::mt19937 random(5);
  const std::int32_t depth = 512;
  const std::int32_t rows = 3;
  const std::int32_t stride = 50;
  const struct {
    TensorType type;
    std::int32_t columns, at;
    bool bias, add;
  } cases[] = {{TensorType::kQ4_K, 21, 0, false, false},
               {TensorType::kQ6_K, 9, 21, true, false},
               {TensorType::kQ8_0, 3, 30, false, true},
               {TensorType::kQ5_0, 16, 33, true, true}};
  QuantCaseRows x(rows, depth, random);
  std::vector<QuantCaseMatrix> matrices;
  std::vector<float> bias(21);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = 0.25F * static_cast<float>(i);
  const DeviceBuffer<float> device_bias(bias);
  const std::vector<float> before(static_cast<std::size_t>(rows * stride), 0.5F);
  std::vector<float> expected = before;
  for (const auto& c : cases) {
    const cpu::TestTensor t = cpu::make_tensor(c.type, depth, c.columns, random);
    matrices.emplace_back(t.tensor);
    const std::vector<float> plain = twin_product(t.tensor, x);
    for (std::int32_t i = 0; i < rows * c.columns; ++i) {
      float value = plain[static_cast<std::size_t>(i)];
      if (c.bias) value += bias[static_cast<std::size_t>(i % c.columns)];
      const std::int32_t at = i / c.columns * stride + c.at + i % c.columns;
      float& to = expected[static_cast<std::size_t>(at)];
      to = c.add ? to + value : value;
    }
  }
  simt::in_every_order([&](Order) {
    DeviceBuffer<float> out(before);
    std::vector<QuantProduct> products;
    for (std::size_t i = 0; i < matrices.size(); ++i) {
      products.push_back({matrices[i].view, cases[i].bias ? device_bias.data() : nullptr, out.data() + cases[i].at,
                          stride, cases[i].add});
    }
    quant_dot(x.view(), rows, products, nullptr);
    EXPECT_EQ(out.to_vector(), expected);
  });
}

}  // namespace
}  // namespace folio::cuda
