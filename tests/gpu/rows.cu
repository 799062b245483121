// The row kernels against double.
#include <cmath>
#include <random>

#include "engine/kernels/cuda/norm_rows.h"
#include "engine/kernels/cuda/rope_kv.h"
#include "engine/kernels/cuda/row_ops.h"
#include "tests/gpu/compare.h"
#include "tests/gpu/parts.h"
#include "tests/simt/either_buffer.h"

namespace folio::gpu {
namespace {

using cuda::DeviceBuffer;

std::vector<float> normal_floats(std::size_t count, unsigned seed, float spread = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// A row as products read it: bf16, and int8 with a scale for each 32.
struct Outputs {
  Outputs(std::size_t rows, std::size_t columns)
      : bf16(rows * columns), values(rows * columns), groups(rows * columns / 32) {
    outputs.bf16 = bf16.data();
    outputs.quant = {values.data(), groups.data(), static_cast<std::int32_t>(columns)};
  }
  // The largest error as a share of what rounding allows.
  double error(const std::vector<double>& expected) const {
    const auto rounded = bf16.to_vector();
    const auto quants = values.to_vector();
    const auto scales = groups.to_vector();
    double worst = 0;
    for (std::size_t group = 0; group < expected.size() / 32; ++group) {
      double largest = 1e-30;
      for (std::size_t i = 32 * group; i < 32 * group + 32; ++i) largest = std::max(largest, std::fabs(expected[i]));
      for (std::size_t i = 32 * group; i < 32 * group + 32; ++i) {
        const double of_bf16 = std::fabs(static_cast<double>(__bfloat162float(rounded[i])) - expected[i]) /
                               (std::fabs(expected[i]) * (0x1p-8 + 1e-5) + 1e-30);
        const double of_quant =
            std::fabs(quants[i] * static_cast<double>(scales[group].x) - expected[i]) / ((0.5 + 1e-3) * largest / 127);
        if (!(of_bf16 <= worst)) worst = of_bf16;
        if (!(of_quant <= worst)) worst = of_quant;
      }
    }
    return worst;
  }
  DeviceBuffer<__nv_bfloat16> bf16;
  DeviceBuffer<std::int8_t> values;
  DeviceBuffer<float2> groups;
  cuda::RowOutputs outputs;
};

void check_norms(Report& report, std::size_t rows, std::size_t columns) {
  const std::vector<float> x = normal_floats(rows * columns, 1);
  const std::vector<float> projected = normal_floats(rows * columns, 2, 3.0F);
  const std::vector<float> weight = normal_floats(columns, 3);
  std::vector<double> expected(x.size());
  std::vector<float> sums(x.size());
  for (std::size_t r = 0; r < rows; ++r) {
    double squares = 0;
    for (std::size_t i = r * columns; i < (r + 1) * columns; ++i) {
      expected[i] = static_cast<double>(x[i]) + static_cast<double>(projected[i]);
      sums[i] = static_cast<float>(expected[i]);
      squares += expected[i] * expected[i];
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(columns) + 1e-5);
    for (std::size_t i = 0; i < columns; ++i) expected[r * columns + i] *= factor * static_cast<double>(weight[i]);
  }
  DeviceBuffer<float> device_x(x);
  const DeviceBuffer<float> device_projected(projected);
  const DeviceBuffer<float> device_weight(weight);
  Outputs out(rows, columns);
  cuda::NormRows work{.columns = static_cast<std::int32_t>(columns), .x = device_x.data()};
  work.projected = device_projected.data();
  work.norm = {device_weight.data(), 1e-5F};
  work.out = out.outputs;
  cuda::norm_rows(work, static_cast<std::int32_t>(rows), nullptr);
  const std::string name = "norm of " + std::to_string(rows) + " x " + std::to_string(columns);
  check_near(report, name + ", x", device_x.to_vector(), sums, 1e-5);
  const double error = out.error(expected);
  report.check(name + ", both forms", error <= 1, number(error) + " of what rounding allows");
}

void check_gates(Report& report, Activation activation, std::size_t rows, std::size_t columns) {
  const std::vector<float> gate = normal_floats(rows * columns, 1, 4.0F);
  const std::vector<float> up = normal_floats(rows * columns, 2);
  std::vector<double> expected(gate.size());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const auto g = static_cast<double>(gate[i]);
    const double gelu = 0.5 * g * (1 + std::tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
    expected[i] = (activation == Activation::kSilu ? g / (1 + std::exp(-g)) : gelu) * static_cast<double>(up[i]);
  }
  const DeviceBuffer<float> device_gate(gate);
  const DeviceBuffer<float> device_up(up);
  Outputs out(rows, columns);
  cuda::gate_rows({.gate = device_gate.data(),
                   .up = device_up.data(),
                   .columns = static_cast<std::int32_t>(columns),
                   .activation = activation,
                   .out = out.outputs},
                  static_cast<std::int32_t>(rows), nullptr);
  // bf16 of what is almost nothing (a gate far below zero) may be off by the activation's own error: 1e-6 of `up`.
  double error = 0;
  const auto rounded = out.bf16.to_vector();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double allowed = std::fabs(expected[i]) * (0x1p-8 + 1e-4) + 2e-6 * std::fabs(static_cast<double>(up[i]));
    const double share = std::fabs(static_cast<double>(__bfloat162float(rounded[i])) - expected[i]) / allowed;
    if (!(share <= error)) error = share;
  }
  report.check(std::string(activation == Activation::kSilu ? "SiLU" : "GELU") + " gate of " + std::to_string(columns),
               error <= 1, number(error) + " of what rounding allows");
}

void check_embedding(Report& report) {
  constexpr std::size_t kRows = 37;
  constexpr std::size_t kColumns = 576;
  std::vector<__nv_bfloat16> table;
  for (const float value : normal_floats(kRows * kColumns, 1)) table.push_back(__float2bfloat16_rn(value));
  const std::vector<std::int32_t> sampled{7, -1, 36};
  const std::vector<std::int32_t> tokens{0, 36, -1, -3, 5, -2};
  const std::vector<std::int32_t> ids{0, 36, 7, 36, 5, -1};
  std::vector<float> expected;
  for (const std::int32_t id : ids) {
    for (std::size_t i = 0; i < kColumns; ++i) {
      expected.push_back(id < 0 ? 0.0F : 25.0F * __bfloat162float(table[static_cast<std::size_t>(id) * kColumns + i]));
    }
  }
  const DeviceBuffer<__nv_bfloat16> device_table(table);
  const DeviceBuffer<std::int32_t> device_tokens(tokens);
  const DeviceBuffer<std::int32_t> device_sampled(sampled);
  DeviceBuffer<float> x(expected.size());
  cuda::embed_rows({.table = device_table.data(),
                    .columns = kColumns,
                    .num_rows = kRows,
                    .scale = 25.0F,
                    .tokens = device_tokens.data(),
                    .sampled = device_sampled.data(),
                    .x = x.data()},
                   static_cast<std::int32_t>(tokens.size()), nullptr);
  check_near(report, "embedding", x.to_vector(), expected, 0.0);
}

// The device's cosine and sine of double, rounded: those of the host to the bit.
void check_angles(Report& report) {
  const std::vector<std::int32_t> positions{0, 1, 2, 100, 4095, 131071, 1000003, 1 << 26};
  const std::vector<float> frequencies{1.0F, 0.5F, 0.1F, 0.013F, 1e-4F, 1e-6F};
  const DeviceBuffer<std::int32_t> device_positions(positions);
  const DeviceBuffer<float> device_frequencies(frequencies);
  DeviceBuffer<float2> angles(positions.size() * frequencies.size());
  cuda::make_angles({device_positions.data(), device_frequencies.data(), static_cast<std::int32_t>(frequencies.size()),
                     angles.data()},
                    static_cast<std::int32_t>(positions.size()), nullptr);
  std::vector<float> got;
  std::vector<float> expected;
  for (const float2 angle : angles.to_vector()) got.insert(got.end(), {angle.x, angle.y});
  for (const std::int32_t position : positions) {
    for (const float frequency : frequencies) {
      const auto angle = static_cast<double>(static_cast<float>(position) * frequency);
      expected.insert(expected.end(), {static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle))});
    }
  }
  check_near(report, "angles", got, expected, 1e-7);
  report.figure("angles that are the host's to the bit", got == expected ? 1 : 0, "yes/no");
}

}  // namespace

void check_rows(Report& report) {
  for (const std::size_t columns : {32U, 576U, 1152U, 2048U, 4096U, 14336U}) {
    check_norms(report, 5, columns);
    check_gates(report, Activation::kSilu, 3, columns);
    check_gates(report, Activation::kGelu, 3, columns);
  }
  check_embedding(report);
  check_angles(report);
}

}  // namespace folio::gpu
