#include "client/plan/step_forecast.h"

#include <gtest/gtest.h>

namespace folio::client {
namespace {

v1::StepTimes times(double base, double row, double pair, double key, double logits) {
  v1::StepTimes out;
  out.set_base_ms(base);
  out.set_row_ms(row);
  out.set_pair_ms(pair);
  out.set_key_ms(key);
  out.set_logit_row_ms(logits);
  out.set_num_samples(100);
  out.set_trusted_rows(1024);
  return out;
}

TEST(Forecast, NothingBeforeStepsWereSeen) {
  v1::StepTimes few = times(1, 1, 1, 1, 1);
  few.set_num_samples(19);
  EXPECT_FALSE(forecast(few, {}, {}));
  EXPECT_FALSE(forecast(v1::StepTimes(), {}, {}));
}

TEST(Forecast, OneUserAlone) {
  const auto seen = forecast(times(5, 0.5, 0.001, 0.01, 2), {}, {.users = 1, .context = 1000, .prompt_tokens = 600});
  ASSERT_TRUE(seen);
  EXPECT_DOUBLE_EQ(seen->itl_ms, 5 + 0.5 + 1 + 10 + 2);
  EXPECT_EQ(seen->chunk, 512);
  EXPECT_EQ(seen->steps, 2);
  EXPECT_DOUBLE_EQ(seen->ttft_ms,
                   (5 + 256 + 0.001 * (512 * 513 / 2) + 5.12) + (5 + 44 + 0.001 * (88 * 512 + 88 * 89 / 2) + 6 + 2));
  EXPECT_TRUE(seen->is_seen);
}

TEST(Forecast, CachedTokensAreNotComputed) {
  const ForecastOf whole{.users = 1, .context = 1000, .prompt_tokens = 600, .cached_tokens = 5000};
  const auto seen = forecast(times(5, 1, 0, 0, 0), {}, whole);
  EXPECT_EQ(seen->steps, 1);
  EXPECT_EQ(seen->chunk, 1);  // its logits are wanted
  EXPECT_DOUBLE_EQ(seen->ttft_ms, 6);
  EXPECT_EQ(forecast(times(5, 1, 0, 0, 0), {}, {.context = 1000, .prompt_tokens = 600, .cached_tokens = 592})->chunk,
            8);
}

TEST(Forecast, ChunksBesideAnswersKeepTheTarget) {
  // 31 answers take 10 + 31; 59 ms are left for a chunk of 59 tokens.
  const StepLimits limits{.target_itl_ms = 100};
  const auto seen = forecast(times(10, 1, 0, 0, 0), limits, {.users = 32, .context = 100, .prompt_tokens = 118});
  EXPECT_DOUBLE_EQ(seen->itl_ms, 42);
  EXPECT_EQ(seen->chunk, 59);
  EXPECT_EQ(seen->steps, 2);
  EXPECT_DOUBLE_EQ(seen->ttft_ms, 200);
  // However slow the machine is: 8 tokens.
  EXPECT_EQ(forecast(times(500, 1, 0, 0, 0), limits, {.users = 32, .context = 100, .prompt_tokens = 100})->chunk, 8);
  // However fast: the step's tokens, and what was seen.
  EXPECT_EQ(forecast(times(1, 0, 0, 0, 0), limits, {.users = 32, .context = 9000, .prompt_tokens = 900})->chunk, 481);
  v1::StepTimes young = times(1, 0, 0, 0, 0);
  young.set_trusted_rows(64);
  EXPECT_EQ(forecast(young, limits, {.users = 32, .context = 9000, .prompt_tokens = 900})->chunk, 33);
}

TEST(Forecast, NoMoreThanMayRun) {
  const auto seen = forecast(times(0, 1, 0, 0, 0), {.max_num_seqs = 16}, {.users = 500, .context = 10});
  EXPECT_EQ(seen->running, 16);
  EXPECT_DOUBLE_EQ(seen->itl_ms, 16);
}

TEST(Forecast, SaysWhenTheServerHasNotSeenSuchSteps) {
  v1::StepTimes young = times(1, 1, 0, 0, 0);
  young.set_trusted_rows(100);
  EXPECT_TRUE(forecast(young, {}, {.users = 1, .context = 100, .prompt_tokens = 100})->is_seen);
  EXPECT_FALSE(forecast(young, {}, {.users = 1, .context = 200, .prompt_tokens = 101})->is_seen);
}

}  // namespace
}  // namespace folio::client
