// What the tests of the row kernels share.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "engine/kernels/cpu/kernel_table.h"
#include "engine/kernels/cuda/row_outputs.h"
#include "tests/simt/device_buffer.h"

namespace folio::cuda {

inline std::vector<float> normal_floats(std::size_t count, unsigned seed, float spread = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Room for RowOutputs.
struct OutputBuffers {
  OutputBuffers(std::size_t rows, std::size_t columns, bool quantised)
      : bf16(rows * columns), values(quantised ? rows * columns : 0), groups(quantised ? rows * columns / 32 : 0) {
    outputs.bf16 = bf16.data();
    if (quantised) outputs.quant = {values.data(), groups.data(), static_cast<std::int32_t>(columns)};
  }
  simt::DeviceBuffer<__nv_bfloat16> bf16;
  simt::DeviceBuffer<std::int8_t> values;
  simt::DeviceBuffer<float2> groups;
  RowOutputs outputs;
};

// Both forms of one row are what `expected` says: to the nearest bf16, and to half a step of its group's scale.
inline void expect_outputs(const OutputBuffers& out, std::size_t row, const std::vector<double>& expected) {
  const std::size_t columns = expected.size();
  for (std::size_t i = 0; i < columns; ++i) {
    const double got = static_cast<double>(__bfloat162float(out.bf16[row * columns + i]));
    ASSERT_NEAR(got, expected[i], std::fabs(expected[i]) * (0x1p-8 + 1e-5) + 1e-30) << "row " << row << ", " << i;
  }
  if (out.values.size() == 0) return;
  for (std::size_t group = 0; group < columns / 32; ++group) {
    const float2 scales = out.groups[row * columns / 32 + group];
    double largest = 0;
    for (std::size_t i = 32 * group; i < 32 * group + 32; ++i) largest = std::max(largest, std::fabs(expected[i]));
    int sum = 0;
    for (std::size_t i = 32 * group; i < 32 * group + 32; ++i) {
      const int q = out.values[row * columns + i];
      sum += q;
      ASSERT_NEAR(q * static_cast<double>(scales.x), expected[i], (0.5 + 1e-3) * largest / 127 + 1e-30) << i;
    }
    ASSERT_NEAR(static_cast<double>(scales.x), largest / 127, 1e-5 * largest / 127);
    ASSERT_EQ(scales.y, scales.x * static_cast<float>(sum));
  }
}

// The quantised form of `row` is the CPU's of these floats, bit for bit.
inline void expect_quantised_as_cpu(const OutputBuffers& out, std::size_t row, const float* floats,
                                    std::size_t columns) {
  std::vector<std::int8_t> q(columns);
  std::vector<cpu::QuantGroup> groups(columns / 32);
  cpu::scalar_kernels().quantize_rows(floats, columns, 1, static_cast<int>(columns),
                                      {columns, q.data(), groups.data()});
  for (std::size_t i = 0; i < columns; ++i) ASSERT_EQ(out.values[row * columns + i], q[i]) << i;
  for (std::size_t group = 0; group < columns / 32; ++group) {
    const float2 got = out.groups[row * columns / 32 + group];
    ASSERT_EQ(got.x, groups[group].scale);
    ASSERT_EQ(got.y, groups[group].offset);
  }
}

}  // namespace folio::cuda
