// Random-weight models against logits of an independent float32 implementation: every architecture, level and KV type.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>

#include "engine/model/load_model.h"
#include "tests/engine/kernels/levels.h"
#include "tests/engine/model/reference_cases.h"
#include "tests/engine/model/teacher_force.h"

namespace folio {
namespace {

class TinyModels : public testing::TestWithParam<std::string> {};

// How far logits may be off, and how small a margin of the reference's best may be turned over. bf16 keeps 3 bits less
// than f16, so its errors are 8 times f16's; int8's, with one step for a row of 16 to 32 dims, about 25 times.
constexpr struct {
  const char* name;
  double worst;
  double rms;
  double margin;
} kKvTypes[] = {
    {"f32", 1e-3, 1e-4, 0.0}, {"f16", 0.05, 0.005, 0.0}, {"bf16", 0.2, 0.025, 0.2}, {"int8", 0.5, 0.07, 0.5}};

TEST_P(TinyModels, LogitsMatchTheReference) {
  for (const TinyModel& tiny : read_tiny_models()) {
    const GgufFile file(tiny.path);
    for (const auto& kv : kKvTypes) {
      if (!cpu::has_own(GetParam(), kv.name)) continue;
      const LoadedModel loaded =
          load_model(file, {.isa = GetParam(), .num_threads = 2, .kv_dtype = kv.name, .kv_blocks = 32});
      double worst = 0;
      double squares = 0;
      std::int64_t count = 0;
      for (std::size_t s = 0; s < tiny.sequences.size(); ++s) {
        for (const int chunk : {1, 7, 128}) {
          teacher_force(*loaded.model, tiny.sequences[s], chunk, 0, [&](int position, std::span<const float> logits) {
            const auto row = static_cast<std::size_t>(tiny.row_start[s] + position);
            const std::span expected(tiny.logits.data() + row * logits.size(), logits.size());
            for (std::size_t i = 0; i < logits.size(); ++i) {
              const double error = std::fabs(static_cast<double>(logits[i] - expected[i]));
              worst = std::max(worst, error);
              squares += error * error;
              ++count;
            }
            const float best = expected[static_cast<std::size_t>(argmax(expected))];
            const float ours = expected[static_cast<std::size_t>(argmax(logits))];
            EXPECT_LE(best - ours, kv.margin) << tiny.name << " kv " << kv.name << " position " << position;
          });
        }
      }
      const double rms = std::sqrt(squares / static_cast<double>(count));
      std::printf("%s %s kv %s: worst %.5f, rms %.6f\n", tiny.name.c_str(), GetParam().c_str(), kv.name, worst, rms);
      EXPECT_LT(worst, kv.worst) << tiny.name << " kv " << kv.name;
      EXPECT_LT(rms, kv.rms) << tiny.name << " kv " << kv.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, TinyModels, testing::ValuesIn(cpu::available_levels()),
                         [](const auto& level) { return level.param; });

}  // namespace
}  // namespace folio
