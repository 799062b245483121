#include "engine/load_meter.h"

#include <gtest/gtest.h>

namespace folio {
namespace {

using std::chrono::milliseconds;

constexpr TimePoint kStart{std::chrono::seconds(1000)};

StepPhases forward(double ms) {
  StepPhases out;
  out.forward_ms = ms;
  return out;
}

TEST(LoadMeter, IsZeroBeforeTheFirstStep) {
  const LoadMeter meter;
  EXPECT_EQ(meter.prompt_tokens_per_second(kStart), 0);
  EXPECT_EQ(meter.mean_step().total_ms(), 0);
}

TEST(LoadMeter, RatesAreOverTheLastSecondsAndFallToZeroWhenIdle) {
  LoadMeter meter;
  for (int i = 1; i <= 100; ++i) meter.record(kStart + milliseconds(100 * i), forward(100), 20, 3);
  const TimePoint end = kStart + std::chrono::seconds(10);
  EXPECT_NEAR(meter.prompt_tokens_per_second(end), 200, 10);
  EXPECT_NEAR(meter.output_tokens_per_second(end), 30, 2);
  EXPECT_LT(meter.output_tokens_per_second(end + std::chrono::seconds(3)), 20);
  EXPECT_EQ(meter.output_tokens_per_second(end + std::chrono::seconds(6)), 0);
}

TEST(LoadMeter, ARateAfterTheFirstStepIsThatStepsOwn) {
  LoadMeter meter;
  meter.record(kStart + milliseconds(500), forward(500), 100, 1);
  EXPECT_NEAR(meter.prompt_tokens_per_second(kStart + milliseconds(500)), 200, 1);
}

TEST(LoadMeter, TheMeanIsOfTheLast64Steps) {
  LoadMeter meter;
  for (int i = 0; i < 100; ++i) meter.record(kStart, forward(50), 1, 1);
  for (int i = 0; i < 64; ++i) meter.record(kStart, {0.25, 0.5, i % 2 == 0 ? 1.0 : 3.0, 0.75, 1}, 1, 1);
  const StepPhases mean = meter.mean_step();
  EXPECT_DOUBLE_EQ(mean.schedule_ms, 0.25);
  EXPECT_DOUBLE_EQ(mean.build_ms, 0.5);
  EXPECT_DOUBLE_EQ(mean.forward_ms, 2);
  EXPECT_DOUBLE_EQ(mean.sample_ms, 0.75);
  EXPECT_DOUBLE_EQ(mean.commit_ms, 1);
  EXPECT_DOUBLE_EQ(mean.total_ms(), 4.5);
  EXPECT_EQ(meter.last_step_ms(), 5.5);
}

}  // namespace
}  // namespace folio
