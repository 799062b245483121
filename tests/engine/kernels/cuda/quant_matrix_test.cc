// Sizes and places of the planes, and float matrices as bf16. That the planes hold the file's values: tests/simt.
#include "engine/kernels/cuda/quant_matrix.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "tests/engine/kernels/test_tensor.h"

namespace folio::cuda {
namespace {

TEST(QuantMatrix, TakesTheFilesSize) {
  for (const TensorType type : cpu::kTypes) {
    if (!has_quant_form(type)) continue;
    const TensorTypeInfo& info = tensor_type_info(type);
    const double file = 4096.0 * 4096.0 / info.block_elements * info.block_bytes;
    const double ratio = static_cast<double>(quant_matrix_bytes(type, 4096, 4096)) / file;
    EXPECT_GE(ratio, 1.0) << info.name;
    EXPECT_LT(ratio, quant_shape(type).has_min && quant_shape(type).has_supers ? 1.028 : 1.0001) << info.name;
  }
}

TEST(QuantMatrix, PlanesAreAlignedApartAndInside) {
  const auto* start = reinterpret_cast<const std::uint8_t*>(0x1000);
  for (const TensorType type : cpu::kTypes) {
    if (!has_quant_form(type)) continue;
    const QuantShape shape = quant_shape(type);
    for (const std::int32_t columns : {1, 3, 101}) {
      const std::int32_t depth = tensor_type_info(type).block_elements == 256 ? 768 : 96;
      const QuantMatrix matrix = quant_matrix(type, depth, columns, start);
      const auto groups = static_cast<std::size_t>(depth) / 32 * static_cast<std::size_t>(columns);
      EXPECT_EQ(matrix.low, start);
      EXPECT_GE(matrix.high, matrix.low + 16 * groups);
      EXPECT_GE(matrix.scales, matrix.high + groups * shape.high_bytes());
      EXPECT_GE(matrix.supers, matrix.scales + groups * shape.scale_bytes());
      EXPECT_GE(start + quant_matrix_bytes(type, depth, columns), matrix.supers + groups / 8 * shape.super_bytes());
      for (const auto* plane : {matrix.high, matrix.scales, matrix.supers}) EXPECT_EQ((plane - start) % 256, 0);
    }
  }
}

TEST(QuantMatrix, WorkersShareTheColumns) {
  std::mt19937 random(3);
  ThreadPool alone(1);
  ThreadPool several(3);
  for (const TensorType type : cpu::kTypes) {
    if (!has_quant_form(type)) continue;
    const cpu::TestTensor t = cpu::make_tensor(type, 256, 77, random);
    std::vector<std::byte> one(quant_matrix_bytes(type, 256, 77), std::byte{1});
    std::vector<std::byte> other(one.size(), std::byte{2});
    pack_quant_matrix(t.tensor, alone, one);
    pack_quant_matrix(t.tensor, several, other);
    EXPECT_EQ(one, other) << tensor_type_info(type).name;
  }
}

// The nearest of the two neighbours, ties to the even one.
std::uint16_t nearest_bf16(float value) {
  const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16U);
  const auto above = static_cast<std::uint16_t>(below + 1);
  const double to_below = std::fabs(static_cast<double>(value) - static_cast<double>(bfloat16_to_float(below)));
  const double to_above = std::fabs(static_cast<double>(bfloat16_to_float(above)) - static_cast<double>(value));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return below % 2 == 0 ? below : above;
}

TEST(Bf16Rows, AreTheNearest) {
  std::mt19937 random(9);
  ThreadPool pool(2);
  for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
    const cpu::TestTensor t = cpu::make_tensor(type, 37, 45, random);
    std::vector<std::uint16_t> out(t.values.size());
    bf16_rows(t.tensor, pool, out);
    for (std::size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], nearest_bf16(t.values[i])) << tensor_type_info(type).name << ' ' << t.values[i];
    }
  }
}

TEST(Bf16Rows, TiesInfinityAndNan) {
  const float values[] = {1.0F + 0x1p-8F,
                          1.0F + 3 * 0x1p-8F,
                          std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::max(),
                          std::bit_cast<float>(0x7F800001U),
                          -0.0F};
  const std::uint16_t expected[] = {0x3F80, 0x3F82, 0x7F80, 0xFF80, 0x7FC0, 0x8000};
  std::uint16_t out[6];
  ThreadPool pool(1);
  bf16_rows({"values", TensorType::kF32, {6}, std::as_bytes(std::span(values))}, pool, out);
  for (std::size_t i = 0; i < 6; ++i) EXPECT_EQ(out[i], expected[i]) << i;
}

}  // namespace
}  // namespace folio::cuda
