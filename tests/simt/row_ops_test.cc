#include "engine/kernels/cuda/row_ops.h"

#include "tests/simt/row_checks.h"

namespace folio::cuda {
namespace {

using simt::DeviceBuffer;

TEST(EmbedRowsTest, TokensOfTheHostAndOfTheStepBefore) {
  constexpr std::size_t kRows = 37;
  for (const std::size_t columns : {4U, 8U, 576U, 2052U}) {
    const std::vector<float> floats = normal_floats(kRows * columns, 1);
    std::vector<__nv_bfloat16> table;
    for (const float value : floats) table.push_back(__float2bfloat16_rn(value));
    const std::vector<std::int32_t> sampled{7, -1, 36, 37};                // -1: a row without numbers; 37: no token
    const std::vector<std::int32_t> tokens{0, 36, -1, -3, 5, -2, -4, 36};  // -3: sampled[2]
    const std::vector<std::int32_t> ids{0, 36, 7, 36, 5, -1, -1, 36};
    simt::in_every_order([&](simt::Order) {
      const DeviceBuffer<__nv_bfloat16> device_table(table);
      const DeviceBuffer<std::int32_t> device_tokens(tokens);
      const DeviceBuffer<std::int32_t> device_sampled(sampled);
      DeviceBuffer<float> x(tokens.size() * columns);
      embed_rows({.table = device_table.data(),
                  .columns = static_cast<std::int32_t>(columns),
                  .num_rows = kRows,
                  .scale = 25.298F,
                  .tokens = device_tokens.data(),
                  .sampled = device_sampled.data(),
                  .x = x.data()},
                 static_cast<std::int32_t>(tokens.size()), nullptr);
      for (std::size_t t = 0; t < tokens.size(); ++t) {
        for (std::size_t i = 0; i < columns; ++i) {
          const float expected =
              ids[t] < 0 ? 0.0F : 25.298F * __bfloat162float(table[static_cast<std::size_t>(ids[t]) * columns + i]);
          ASSERT_EQ(x[t * columns + i], expected) << t << " " << i;
        }
      }
    });
  }
}

TEST(GateRowsTest, ActivationsAreTheCpus) {
  for (const Activation activation : {Activation::kSilu, Activation::kGelu}) {
    for (const std::size_t columns : {32U, 1536U, 2048U, 100U}) {
      constexpr std::size_t kRows = 3;
      std::vector<float> gate = normal_floats(kRows * columns, 1, 4.0F);
      const std::vector<float> up = normal_floats(kRows * columns, 2);
      gate[0] = 0.0F;
      gate[1] = 90.0F;
      gate[2] = -90.0F;
      gate[3] = -1e6F;
      gate[4] = 1e6F;
      std::vector<float> cpu(gate.size());
      const cpu::KernelTable& kernels = cpu::scalar_kernels();
      (activation == Activation::kSilu ? kernels.gate_silu : kernels.gate_gelu)(gate.data(), up.data(), cpu.data(),
                                                                                cpu.size());
      simt::in_every_order([&](simt::Order) {
        const DeviceBuffer<float> device_gate(gate);
        const DeviceBuffer<float> device_up(up);
        OutputBuffers out(kRows, columns, columns % 32 == 0);
        gate_rows({.gate = device_gate.data(),
                   .up = device_up.data(),
                   .columns = static_cast<std::int32_t>(columns),
                   .activation = activation,
                   .out = out.outputs},
                  kRows, nullptr);
        for (std::size_t r = 0; r < kRows; ++r) {
          const auto begin = cpu.begin() + static_cast<std::ptrdiff_t>(r * columns);
          expect_outputs(out, r, {begin, begin + static_cast<std::ptrdiff_t>(columns)});
        }
      });
    }
  }
}

TEST(RowOpsTest, NoRowsTouchNothing) {
  embed_rows({.columns = 64}, 0, nullptr);
  gate_rows({.columns = 64}, 0, nullptr);
}

}  // namespace
}  // namespace folio::cuda
