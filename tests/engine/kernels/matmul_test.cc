// Every tensor format and level against a double reference over the same quantised activations, over odd sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "engine/kernels/cpu/packed_matrix.h"
#include "tests/engine/kernels/levels.h"

namespace folio::cpu {
namespace {

constexpr TensorType kTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16, TensorType::kQ4_0,
                                 TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ8_0,
                                 TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K};

struct TestTensor {
  std::vector<std::byte> data;
  std::vector<float> values;  // [columns][depth]
  GgufTensor tensor;
};

void put_half(std::vector<std::byte>& data, std::size_t at, float value) {
  const std::uint16_t bits = float_to_half(value);
  std::memcpy(data.data() + at, &bits, 2);
}

// Random bits in every field, but scales that are sane numbers.
TestTensor make_tensor(TensorType type, std::int32_t depth, std::int32_t columns, std::mt19937& random) {
  const TensorTypeInfo& info = tensor_type_info(type);
  TestTensor t;
  const std::size_t count = static_cast<std::size_t>(depth) * static_cast<std::size_t>(columns);
  t.data.resize(count / info.block_elements * info.block_bytes);
  for (auto& b : t.data) b = static_cast<std::byte>(random());
  std::normal_distribution<float> normal;
  for (std::size_t at = 0; at < t.data.size(); at += info.block_bytes) {
    switch (type) {
      case TensorType::kF32: {
        const float v = normal(random);
        std::memcpy(t.data.data() + at, &v, 4);
        break;
      }
      case TensorType::kF16:
        put_half(t.data, at, normal(random));
        break;
      case TensorType::kBF16: {
        const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, normal(random));
        const auto top = static_cast<std::uint16_t>(bits >> 16U);
        std::memcpy(t.data.data() + at, &top, 2);
        break;
      }
      case TensorType::kQ6_K:
        put_half(t.data, at + 208, 0.001F * normal(random));
        break;
      case TensorType::kQ4_1:
      case TensorType::kQ5_1:
      case TensorType::kQ4_K:
      case TensorType::kQ5_K:
        put_half(t.data, at + 2, 0.1F * normal(random));
        [[fallthrough]];
      default:
        put_half(t.data, at, 0.1F * normal(random));
    }
  }
  t.values.resize(count);
  dequantize(type, t.data, t.values);
  t.tensor = {"test.weight", type, {static_cast<std::uint64_t>(depth), static_cast<std::uint64_t>(columns)}, t.data};
  return t;
}

struct Activations {
  std::int32_t rows, depth;
  std::vector<float> x;
  std::vector<std::int8_t> q;
  std::vector<QuantGroup> groups;

  Activations(std::int32_t r, std::int32_t d, const KernelTable& kernels, std::mt19937& random) : rows(r), depth(d) {
    std::normal_distribution<float> normal;
    const auto n = static_cast<std::size_t>(r) * static_cast<std::size_t>(d);
    x.resize(n);
    for (float& v : x) v = normal(random);
    q.resize(n);
    groups.resize(n / 32 + 1);
    if (d % 32 == 0) kernels.quantize_rows(x.data(), static_cast<std::size_t>(d), r, d, view());
  }
  QuantizedRows view() { return {static_cast<std::size_t>(depth), q.data(), groups.data()}; }
  // What the kernel multiplies: the quantised value for integer weights.
  double value(bool quantised, std::size_t row, std::size_t k) const {
    const auto at = row * static_cast<std::size_t>(depth) + k;
    return quantised ? static_cast<double>(q[at]) * static_cast<double>(groups[at / 32].scale)
                     : static_cast<double>(x[at]);
  }
};

MatmulArgs arguments(const PackedMatrix& matrix, Activations& a, std::vector<float>& out) {
  MatmulArgs args{};
  matrix.fill(args);
  args.x = a.x.data();
  args.quantized = a.view();
  args.out = out.data();
  args.out_stride = static_cast<std::size_t>(matrix.columns());
  return args;
}

class Matmul : public testing::TestWithParam<std::string> {};

TEST_P(Matmul, AgreesWithDoubleOverFormatsAndSizes) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::mt19937 random(7);
  ThreadPool pool(1);
  for (const TensorType type : kTypes) {
    const auto block = static_cast<std::int32_t>(tensor_type_info(type).block_elements);
    const std::vector<std::int32_t> depths =
        block == 1 ? std::vector<std::int32_t>{1, 37, 96} : std::vector<std::int32_t>{block, 3 * block};
    for (const std::int32_t depth : depths) {
      for (const std::int32_t columns : {1, 15, 16, 17, 48, 101}) {
        const TestTensor t = make_tensor(type, depth, columns, random);
        const PackedMatrix matrix(t.tensor, pool);
        for (const std::int32_t rows : {1, 2, 5, 6, 7, 13}) {
          Activations a(rows, depth, kernels, random);
          std::vector<float> out(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), -1.0F);
          const MatmulArgs args = arguments(matrix, a, out);
          kernels.matmul[static_cast<int>(matrix.format())](args, 0, matrix.num_panels(), 0, rows, nullptr);
          for (std::size_t r = 0; r < static_cast<std::size_t>(rows); ++r) {
            for (std::size_t c = 0; c < static_cast<std::size_t>(columns); ++c) {
              double expected = 0;
              double size = 0;
              for (std::size_t k = 0; k < static_cast<std::size_t>(depth); ++k) {
                const double term = a.value(matrix.is_integer(), r, k) *
                                    static_cast<double>(t.values[c * static_cast<std::size_t>(depth) + k]);
                expected += term;
                size += std::fabs(term);
              }
              ASSERT_NEAR(out[r * static_cast<std::size_t>(columns) + c], expected, 4e-6 * size + 1e-6)
                  << tensor_type_info(type).name << " depth " << depth << " columns " << columns << " rows " << rows
                  << " at " << r << "," << c;
            }
          }
        }
      }
    }
  }
}

TEST_P(Matmul, ARowsBitsDoNotDependOnTheOthersOrOnTheCut) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::mt19937 random(11);
  ThreadPool pool(1);
  for (const TensorType type : kTypes) {
    const std::int32_t depth = 512;
    const std::int32_t columns = 100;
    const TestTensor t = make_tensor(type, depth, columns, random);
    const PackedMatrix matrix(t.tensor, pool);
    const std::int32_t rows = 17;
    Activations a(rows, depth, kernels, random);
    std::vector<float> whole(static_cast<std::size_t>(rows * columns));
    std::vector<float> cut(whole.size());
    const MatmulFn fn = kernels.matmul[static_cast<int>(matrix.format())];
    fn(arguments(matrix, a, whole), 0, matrix.num_panels(), 0, rows, nullptr);
    const MatmulArgs args = arguments(matrix, a, cut);
    for (int row = 0; row < rows;) {
      const int count = std::min(rows - row, 1 + static_cast<int>(random() % 5));
      for (int panel = 0; panel < matrix.num_panels();) {
        const int width = std::min(matrix.num_panels() - panel, 1 + static_cast<int>(random() % 3));
        fn(args, panel, panel + width, row, row + count, nullptr);
        panel += width;
      }
      row += count;
    }
    EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)), 0) << tensor_type_info(type).name;
  }
}

TEST_P(Matmul, AddsAndTakesABias) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::mt19937 random(3);
  ThreadPool pool(1);
  const TestTensor t = make_tensor(TensorType::kQ4_1, 64, 21, random);
  const PackedMatrix matrix(t.tensor, pool);
  Activations a(3, 64, kernels, random);
  std::vector<float> plain(63);
  std::vector<float> both(63, 0.5F);
  std::vector<float> bias(21);
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i);
  const MatmulFn fn = kernels.matmul[static_cast<int>(matrix.format())];
  fn(arguments(matrix, a, plain), 0, matrix.num_panels(), 0, 3, nullptr);
  MatmulArgs args = arguments(matrix, a, both);
  args.bias = bias.data();
  args.add = true;
  fn(args, 0, matrix.num_panels(), 0, 3, nullptr);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(both[i], 0.5F + (plain[i] + bias[i % 21]));
}

TEST_P(Matmul, ZeroRowsAndExtremeValuesStayFinite) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::vector<float> x(64, 0.0F);
  x[40] = -3.0e38F;
  std::vector<std::int8_t> q(64);
  std::vector<QuantGroup> groups(2);
  kernels.quantize_rows(x.data(), 64, 1, 64, {64, q.data(), groups.data()});
  EXPECT_EQ(groups[0].scale, 0.0F);
  EXPECT_EQ(q[0], 0);
  EXPECT_EQ(q[40], -127);
  EXPECT_EQ(groups[1].sum, -127);
  EXPECT_EQ(groups[1].first_sum, -127);
}

INSTANTIATE_TEST_SUITE_P(Levels, Matmul, testing::ValuesIn(available_levels()),
                         [](const auto& level) { return level.param; });

TEST(PackedMatrix, GivesBackTheFilesValuesExactly) {
  std::mt19937 random(5);
  ThreadPool pool(2);
  for (const TensorType type : kTypes) {
    const std::int32_t depth = 512;
    const TestTensor t = make_tensor(type, depth, 33, random);
    const PackedMatrix matrix(t.tensor, pool);
    std::vector<float> row(static_cast<std::size_t>(depth));
    for (std::int32_t c = 0; c < 33; ++c) {
      matrix.unpack_row(c, row);
      for (std::size_t k = 0; k < row.size(); ++k) {
        const float expected = t.values[static_cast<std::size_t>(c * depth) + k];
        ASSERT_NEAR(row[k], expected, 1e-6F * std::fabs(expected) + 1e-9F)
            << tensor_type_info(type).name << " " << c << "," << k;
      }
    }
  }
}

}  // namespace
}  // namespace folio::cpu
