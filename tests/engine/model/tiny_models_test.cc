// Random-weight models against logits of an independent float32 implementation: every architecture, level and KV type.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/load_model.h"
#include "tests/engine/kernels/levels.h"
#include "tests/engine/model/reference_cases.h"
#include "tests/engine/model/teacher_force.h"

namespace folio {
namespace {

class TinyModels : public testing::TestWithParam<std::string> {};

TEST_P(TinyModels, LogitsMatchTheReference) {
  for (const TinyModel& tiny : read_tiny_models()) {
    const GgufFile file(tiny.path);
    for (const char* kv : {"f32", "f16"}) {
      const LoadedModel loaded =
          load_model(file, {.isa = GetParam(), .num_threads = 2, .kv_dtype = kv, .kv_blocks = 32});
      const double tolerance = std::string(kv) == "f32" ? 1e-3 : 0.05;
      double worst = 0;
      for (std::size_t s = 0; s < tiny.sequences.size(); ++s) {
        for (const int chunk : {1, 7, 128}) {
          teacher_force(*loaded.model, tiny.sequences[s], chunk, 0, [&](int position, std::span<const float> logits) {
            const auto row = static_cast<std::size_t>(tiny.row_start[s] + position);
            const float* expected = tiny.logits.data() + row * static_cast<std::size_t>(tiny.vocab_size);
            for (std::size_t i = 0; i < logits.size(); ++i)
              worst = std::max(worst, std::fabs(static_cast<double>(logits[i] - expected[i])));
            EXPECT_EQ(argmax(logits), argmax({expected, logits.size()})) << tiny.name << " position " << position;
          });
        }
      }
      EXPECT_LT(worst, tolerance) << tiny.name << " kv " << kv;
      RecordProperty(tiny.name + "_" + kv, std::to_string(worst));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, TinyModels, testing::ValuesIn(cpu::available_levels()),
                         [](const auto& level) { return level.param; });

}  // namespace
}  // namespace folio
