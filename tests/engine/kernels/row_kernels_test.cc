// Norm, rotation and gates of every level against plain doubles, over sizes that do not fill a vector.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/engine/kernels/levels.h"

namespace folio::cpu {
namespace {

std::vector<float> random_values(std::size_t n, std::mt19937& random, float scale = 1.0F) {
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

class RowKernels : public testing::TestWithParam<std::string> {};

TEST_P(RowKernels, RmsNorm) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::mt19937 random(1);
  for (const int columns : {1, 15, 16, 17, 40, 576}) {
    const auto n = static_cast<std::size_t>(columns);
    const std::vector<float> x = random_values(3 * n, random, 5.0F);
    const std::vector<float> weight = random_values(n, random);
    std::vector<float> out(3 * n);
    kernels.rms_norm(x.data(), n, weight.data(), 1e-5F, 3, columns, out.data(), n);
    for (std::size_t r = 0; r < 3; ++r) {
      double squares = 0;
      for (std::size_t i = 0; i < n; ++i)
        squares += static_cast<double>(x[r * n + i]) * static_cast<double>(x[r * n + i]);
      const double factor = 1.0 / std::sqrt(squares / columns + 1e-5);
      for (std::size_t i = 0; i < n; ++i) {
        const double expected = static_cast<double>(x[r * n + i]) * factor * static_cast<double>(weight[i]);
        ASSERT_NEAR(out[r * n + i], expected, 1e-6 * std::fabs(expected) + 1e-7);
      }
    }
  }
}

TEST_P(RowKernels, RopeBothOrdersAndPartial) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::mt19937 random(2);
  for (const bool interleaved : {false, true}) {
    for (const int rotary : {2, 16, 40, 64}) {
      const std::vector<float> x = random_values(64, random);
      const auto half = static_cast<std::size_t>(rotary / 2);
      std::vector<float> cosines(half);
      std::vector<float> sines(half);
      for (std::size_t i = 0; i < half; ++i) {
        cosines[i] = std::cos(static_cast<float>(i) + 0.3F);
        sines[i] = std::sin(static_cast<float>(i) + 0.3F);
      }
      std::vector<float> out = x;
      kernels.rope(out.data(), cosines.data(), sines.data(), rotary, interleaved);
      for (std::size_t i = 0; i < half; ++i) {
        const std::size_t a = interleaved ? 2 * i : i;
        const std::size_t b = interleaved ? 2 * i + 1 : i + half;
        EXPECT_NEAR(out[a], x[a] * cosines[i] - x[b] * sines[i], 1e-6);
        EXPECT_NEAR(out[b], x[a] * sines[i] + x[b] * cosines[i], 1e-6);
      }
      for (auto i = static_cast<std::size_t>(rotary); i < 64; ++i) EXPECT_EQ(out[i], x[i]);
    }
  }
}

TEST_P(RowKernels, Gates) {
  const KernelTable& kernels = select_kernels(GetParam());
  std::vector<float> gate;
  for (float x = -120.0F; x <= 120.0F; x += 0.37F) gate.push_back(x);
  gate.insert(gate.end(), {-1e30F, 1e30F, 0.0F, -0.0F, 1e-30F});
  const std::vector<float> up(gate.size(), 2.0F);
  std::vector<float> out(gate.size());
  kernels.gate_silu(gate.data(), up.data(), out.data(), gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = static_cast<double>(gate[i]);
    ASSERT_NEAR(out[i], 2 * x / (1 + std::exp(-x)), 1e-6 * std::fabs(x) + 1e-7) << x;
  }
  kernels.gate_gelu(gate.data(), up.data(), out.data(), gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = static_cast<double>(gate[i]);
    if (std::fabs(x) > 1e6) continue;  // the cube overflows a float: such a gate is not a number anywhere
    ASSERT_NEAR(out[i], x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))),
                1e-6 * std::fabs(x) + 1e-7)
        << x;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, RowKernels, testing::ValuesIn(levels_outside_attention()),
                         [](const auto& level) { return level.param; });

}  // namespace
}  // namespace folio::cpu
