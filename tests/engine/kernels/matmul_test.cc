// Every tensor format and level against a double reference over the same quantised activations, over odd sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/kernels/cpu/packed_matrix.h"
#include "tests/engine/kernels/levels.h"
#include "tests/engine/kernels/test_tensor.h"

namespace folio::cpu {
namespace {

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

// What is asked of the memory ahead of time: from a matrix that ends sooner too, where the question goes past its end.
TEST_P(Matmul, WhatComesAfterChangesNoBit) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::mt19937 random(13);
  ThreadPool pool(1);
  const TestTensor small = make_tensor(TensorType::kQ4_0, 32, 5, random);
  const PackedMatrix after(small.tensor, pool);
  MatmulArgs after_args{};
  after.fill(after_args);
  for (const TensorType type : kTypes) {
    const std::int32_t columns = 100;
    const TestTensor t = make_tensor(type, 512, columns, random);
    const PackedMatrix matrix(t.tensor, pool);
    const MatmulFn fn = kernels.matmul[static_cast<int>(matrix.format())];
    for (const int panels : {1, matrix.num_panels()}) {
      for (const std::int32_t rows : {1, 3, 9}) {
        Activations a(rows, 512, kernels, random);
        std::vector<float> plain(static_cast<std::size_t>(rows * columns));
        std::vector<float> asking(plain.size());
        fn(arguments(matrix, a, plain), 0, panels, 0, rows, nullptr);
        fn(arguments(matrix, a, asking), 0, panels, 0, rows, after_args.panels);
        EXPECT_EQ(std::memcmp(plain.data(), asking.data(), plain.size() * sizeof(float)), 0)
            << tensor_type_info(type).name << " panels " << panels << " rows " << rows;
      }
    }
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

// The largest sums that 8-bit integers can give: -128 and 127 in all neighbours, where vpmaddubsw would saturate.
TEST_P(Matmul, ExtremeBytesAreSummedExactly) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::mt19937 random(3);
  ThreadPool pool(1);
  TestTensor t = make_tensor(TensorType::kQ8_0, 32, 32, random);
  for (std::size_t column = 0; column < 32; ++column) {
    std::byte* block = t.data.data() + column * 34;
    put_half(t.data, column * 34, 1.0F);
    for (std::size_t k = 0; k < 32; ++k) {
      block[2 + k] = column % 4 == 0   ? std::byte{0x80}
                     : column % 4 == 1 ? std::byte{0x7F}
                                       : (k / (column % 4) % 2 == 0 ? std::byte{0x80} : std::byte{0x7F});
    }
  }
  const PackedMatrix matrix(t.tensor, pool);
  Activations a(4, 32, kernels, random);
  for (std::size_t i = 0; i < a.x.size(); ++i) {
    const std::size_t row = i / 32;
    a.x[i] = row == 0 || (row > 1 && i % 32 / (row - 1) % 2 == 0) ? 127.0F : -127.0F;
  }
  kernels.quantize_rows(a.x.data(), 32, 4, 32, a.view());
  std::vector<float> out(4 * 32);
  kernels.matmul[static_cast<int>(matrix.format())](arguments(matrix, a, out), 0, matrix.num_panels(), 0, 4, nullptr);
  for (std::size_t i = 0; i < out.size(); ++i) {
    int sum = 0;
    for (std::size_t k = 0; k < 32; ++k) {
      sum += a.q[i / 32 * 32 + k] * static_cast<int>(static_cast<std::int8_t>(t.data[i % 32 * 34 + 2 + k]));
    }
    EXPECT_EQ(out[i], static_cast<float>(sum)) << "row " << i / 32 << " column " << i % 32;
  }
}

// Below 1e-30 a group is zero: 127 / largest would not be finite for the smallest.
TEST_P(Matmul, GroupsNextToNothingAreZero) {
  const KernelTable& kernels = select_kernels(GetParam());
  for (const float largest : {1e-45F, 1e-38F, 1e-37F, 1e-31F, 1e-29F}) {
    std::vector<float> x(32, 0.0F);
    x[3] = largest;
    x[17] = -largest / 2;
    std::vector<std::int8_t> q(32, 99);
    QuantGroup group{9.0F, 9.0F, 9, 9};
    kernels.quantize_rows(x.data(), 32, 1, 32, {32, q.data(), &group});
    const bool kept = largest > 1e-30F;
    EXPECT_EQ(q[0], 0) << largest;
    EXPECT_EQ(q[3], kept ? 127 : 0) << largest;
    EXPECT_EQ(group.scale, kept ? largest / 127.0F : 0.0F) << largest;
    EXPECT_EQ(group.first_sum, kept ? 127 : 0) << largest;
    EXPECT_EQ(group.sum, std::accumulate(q.begin(), q.end(), 0)) << largest;
    EXPECT_EQ(group.offset, group.scale * static_cast<float>(group.sum)) << largest;
    if (!kept) {
      EXPECT_EQ(q, std::vector<std::int8_t>(32, 0)) << largest;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Matmul, testing::ValuesIn(levels_outside_attention()),
                         [](const auto& level) { return level.param; });

// The levels of vectors, an FMA for an FMA and a rounding for a rounding (docs/numerics.md).
class MatmulLevels : public testing::Test {
 protected:
  void SetUp() override {
    if (levels_outside_attention().size() < 3) GTEST_SKIP() << "this CPU lacks avx2 or avx512";
  }
};

TEST_F(MatmulLevels, OfVectorsGiveTheSameBits) {
  std::mt19937 random(19);
  ThreadPool pool(1);
  for (const TensorType type : kTypes) {
    const std::int32_t columns = 53;
    const TestTensor t = make_tensor(type, 768, columns, random);
    const PackedMatrix matrix(t.tensor, pool);
    for (const std::int32_t rows : {1, 2, 7}) {
      Activations a(rows, 768, select_kernels("avx2"), random);
      std::vector<float> avx2(static_cast<std::size_t>(rows * columns));
      std::vector<float> avx512(avx2.size());
      const auto format = static_cast<int>(matrix.format());
      select_kernels("avx2").matmul[format](arguments(matrix, a, avx2), 0, matrix.num_panels(), 0, rows, nullptr);
      select_kernels("avx512").matmul[format](arguments(matrix, a, avx512), 0, matrix.num_panels(), 0, rows, nullptr);
      EXPECT_EQ(std::memcmp(avx2.data(), avx512.data(), avx2.size() * sizeof(float)), 0)
          << tensor_type_info(type).name << " rows " << rows;
    }
  }
}

TEST_F(MatmulLevels, OfVectorsQuantiseAlike) {
  std::mt19937 random(29);
  std::normal_distribution<float> normal;
  const std::size_t depth = 32 * 64;
  std::vector<float> x(depth);
  for (std::size_t i = 0; i < depth; ++i) x[i] = normal(random) * std::pow(10.0F, static_cast<float>(i / 32) - 32.0F);
  for (std::size_t i = 0; i < 32; ++i)
    x[32 * 40 + i] = static_cast<float>(i) * 0.5F + (i == 31 ? 111.5F : 0.0F);  // ties
  std::vector<std::int8_t> q[2];
  std::vector<QuantGroup> groups[2];
  for (const int level : {0, 1}) {
    q[level].resize(depth);
    groups[level].resize(depth / 32);
    select_kernels(level == 0 ? "avx2" : "avx512")
        .quantize_rows(x.data(), depth, 1, static_cast<int>(depth), {depth, q[level].data(), groups[level].data()});
  }
  EXPECT_EQ(q[0], q[1]);
  EXPECT_EQ(std::memcmp(groups[0].data(), groups[1].data(), groups[0].size() * sizeof(QuantGroup)), 0);
}

TEST(PackedMatrix, GivesBackTheFilesValuesExactly) {
  std::mt19937 random(5);
  ThreadPool pool(2);
  for (const TensorType type : kTypes) {
    // Of blocks of 32: a chunk that is half used, alone and after a whole one.
    const auto depths = tensor_type_info(type).block_elements > 32 ? std::vector<std::int32_t>{256, 768}
                                                                   : std::vector<std::int32_t>{32, 96, 512};
    for (const std::int32_t depth : depths) {
      const TestTensor t = make_tensor(type, depth, 33, random);
      const PackedMatrix matrix(t.tensor, pool);
      std::vector<float> row(static_cast<std::size_t>(depth));
      for (std::int32_t c = 0; c < 33; ++c) {
        matrix.unpack_row(c, row);
        for (std::size_t k = 0; k < row.size(); ++k) {
          ASSERT_EQ(row[k], t.values[static_cast<std::size_t>(c * depth) + k])
              << tensor_type_info(type).name << " depth " << depth << " at " << c << "," << k;
        }
      }
    }
  }
}

}  // namespace
}  // namespace folio::cpu
