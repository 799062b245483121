#include "engine/kernels/cuda/sampling.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/simt/runner.h"
#include "tests/simt/sampling_case.h"

namespace folio::cuda {
namespace {

// The device gives what the plain rule says. Returns in how many rows the host's sampler says something else.
int check(const SamplingCase& work, std::int64_t position = 17) {
  std::vector<SampleRow> rows;
  std::vector<std::int32_t> plain;
  int different = 0;
  SamplerScratch scratch;
  for (std::size_t r = 0; r < work.logits.size(); ++r) {
    const SampleRequest request = request_of(work, r, position);
    const auto vocab_size = static_cast<std::int32_t>(work.logits[r].size());
    rows.push_back(make_sample_row(request, vocab_size));
    plain.push_back(sample_plainly(rows.back(), work.logits[r]));
    std::vector<float> logits = work.logits[r];
    if (sample_row(request, logits, scratch).id != plain.back()) ++different;
  }
  EXPECT_EQ(sample_on_device(work, rows), plain);
  return different;
}

// 10,000 rows: the plain rule and the host's sampler, of which none but ties within rounding may differ; some of them
// on the device.
TEST(SamplingTest, RandomRowsAreTheHosts) {
  std::mt19937 random(3);
  SamplerScratch scratch;
  int different = 0;
  for (int trial = 0; trial < 10000; ++trial) {
    SamplingCase work;
    work.logits.push_back(random_logits(random, 1 + random() % (1U << (1 + random() % 9U))));
    work.params.push_back(random_params(random));
    const SampleRequest request = request_of(work, 0, trial);
    const SampleRow row = make_sample_row(request, static_cast<std::int32_t>(work.logits[0].size()));
    const std::int32_t plain = sample_plainly(row, work.logits[0]);
    if (sample_row(request, work.logits[0], scratch).id != plain) ++different;
  }
  EXPECT_EQ(different, 0);
}

TEST(SamplingTest, SmallVocabularies) {
  std::mt19937 random(4);
  int different = 0;
  for (const std::size_t vocab : {1U, 2U, 3U, 31U, 64U, 257U, 1000U, 1023U}) {
    SamplingCase work;
    for (int row = 0; row < 50; ++row) {
      work.logits.push_back(random_logits(random, vocab));
      work.params.push_back(random_params(random));
    }
    different += check(work);
  }
  EXPECT_EQ(different, 0);
}

// More ids than the list holds: counting by ranges of keys, and several slices and segments.
TEST(SamplingTest, LargeVocabularies) {
  std::mt19937 random(5);
  int different = 0;
  for (const std::size_t vocab : {1028U, 5003U, 9000U, 20000U}) {
    SamplingCase work;
    for (int row = 0; row < 16; ++row) {
      work.logits.push_back(random_logits(random, vocab));
      work.params.push_back(random_params(random));
    }
    different += check(work);
  }
  EXPECT_EQ(different, 0);
}

// Cuts that end with the last of equals, where counting by ranges goes on from there.
TEST(SamplingTest, CutsBetweenLevels) {
  SamplingCase work;
  std::vector<float> logits(6000);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i % 3);
  for (const std::int32_t top_k : {1999, 2000, 2001, 4000}) {
    for (const float top_p : {1.0F, 0.5F}) {
      SamplingParams params;
      params.temperature = 3.0e38F;  // all weigh the same
      params.top_k = top_k;
      params.top_p = top_p;
      for (params.seed = 0; params.seed < 3; ++params.seed) {
        work.logits.push_back(logits);
        work.params.push_back(params);
      }
    }
  }
  EXPECT_EQ(check(work), 0);
}

// Flat rows: what top_k and top_p keep does not fit the list, so that both cuts end between equals or single keys.
TEST(SamplingTest, CutsThatKeepMuch) {
  std::mt19937 random(6);
  SamplingCase work;
  for (const float spread : {0.0F, 0.001F, 0.7F, 1.0F}) {
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<float> logits(6000);
      std::normal_distribution<float> normal;
      for (float& logit : logits) logit = spread == 0.7F ? std::round(normal(random)) : spread * normal(random);
      SamplingParams params;
      params.seed = random();
      if (kind != 1) params.top_k = 3500;
      if (kind != 0) params.top_p = 0.7F;
      if (kind == 3) params.min_p = 0.3F;
      work.logits.push_back(logits);
      work.params.push_back(params);
    }
  }
  EXPECT_EQ(check(work), 0);
}

TEST(SamplingTest, TheVocabularyOfGemma) {
  std::mt19937 random(7);
  SamplingCase work;
  for (int row = 0; row < 3; ++row) {
    std::normal_distribution<float> normal(0.0F, 4.0F);
    std::vector<float> logits(262144);
    for (float& logit : logits) logit = normal(random);
    SamplingParams params;
    params.seed = random();
    if (row == 0) params.top_k = 64;
    if (row < 2) params.top_p = 0.95F;
    work.logits.push_back(logits);
    work.params.push_back(params);
  }
  EXPECT_EQ(check(work), 0);
}

TEST(SamplingTest, WhatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  SamplingCase work;
  work.logits = {{nan, nan, nan, nan, nan},
                 {-kInfinity, nan, -kInfinity, -kInfinity, -kInfinity},
                 {-kInfinity, nan, -3.0e38F, -kInfinity, nan},
                 {1.0F, kInfinity, nan, kInfinity, 2.0F},
                 {-nan, 2.0F, 2.0F, nan, 2.0F},
                 {3.0e38F, -3.0e38F, nan, 1.0F, -kInfinity}};
  SamplingParams params;
  work.params.assign(work.logits.size(), params);
  EXPECT_EQ(check(work), 0);
  params.temperature = 0.0F;
  work.params.assign(work.logits.size(), params);
  EXPECT_EQ(check(work), 0);
}

// Forks share a row; a place of a padded batch has none.
TEST(SamplingTest, RowsAreNamed) {
  SamplingCase work;
  work.logits = {{1.0F, 2.0F, 3.0F}, {9.0F, 2.0F, 3.0F}};
  const std::vector<SampleRow> rows{{.logit_row = 1},
                                    {.logit_row = -1, .temperature = 1.0F},
                                    {.logit_row = 0},
                                    {.logit_row = 0, .temperature = 1.0F, .uniform = 0.0},
                                    {.logit_row = 0, .temperature = 1.0F, .uniform = 1 - 0x1p-53}};
  EXPECT_EQ(sample_on_device(work, rows), (std::vector<std::int32_t>{0, -1, 2, 0, 2}));
}

TEST(SamplingTest, TheOrderOfThreadsDoesNotShow) {
  std::mt19937 random(8);
  SamplingCase work;
  for (int row = 0; row < 6; ++row) {
    work.logits.push_back(random_logits(random, 3001));
    work.params.push_back(random_params(random));
  }
  simt::in_every_order([&](simt::Order) { EXPECT_EQ(check(work), 0); });
}

TEST(SamplingMathTest, WeightsAreTheHosts) {
  std::mt19937 random(9);
  for (int i = 0; i < 1000000; ++i) {
    const float x = -std::ldexp(static_cast<float>(random() >> 8U) * 0x1p-24F, static_cast<int>(random() % 12U) - 4);
    ASSERT_EQ(exp_weight(x), exp_nonpositive(x)) << x;
  }
  for (const float x : {0.0F, -86.9F, -87.0F, -88.0F, -kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(exp_weight(x), exp_nonpositive(x)) << x;
  }
  EXPECT_EQ(fixed_weight(3.0F, 3.0F, 1.0F, 1.0F), std::uint64_t{1} << 44U);
}

TEST(SamplingMathTest, KeysOrderAsValues) {
  const float values[] = {-kInfinity, -3.0e38F, -1.0F, -1e-45F, 0.0F, 1e-45F, 1e-30F, 1.0F, 3.0e38F, kInfinity};
  for (std::size_t i = 1; i < std::size(values); ++i) EXPECT_LT(order_key(values[i - 1]), order_key(values[i]));
  for (const float value : values) EXPECT_EQ(key_value(order_key(value)), value);
  EXPECT_EQ(order_key(-0.0F), order_key(0.0F));
}

TEST(SamplingMathTest, WhatWeighsNothingIsNotLookedAt) {
  std::mt19937 random(10);
  for (int i = 0; i < 100000; ++i) {
    const float max = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    const float temperature = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x7fffffffU);
    if (!std::isfinite(max) || !(temperature >= std::numeric_limits<float>::min()) || temperature > 3.0e38F) continue;
    const float least = least_weighing(max, temperature);
    if (least > std::numeric_limits<float>::lowest()) {
      EXPECT_EQ(fixed_weight(std::nextafter(least, -kInfinity), max, temperature, 0.0F), 0)
          << max << " " << temperature;
    }
  }
}

TEST(SamplingTest, WhatChangesLogitsIsTheHosts) {
  SamplingParams params;
  SampleRequest request;
  request.params = &params;
  EXPECT_TRUE(samples_on_device(request, 100));
  EXPECT_FALSE(samples_on_device(request, kMaxSampledVocab + 1));
  const TokenId masked[] = {3};
  request.masked = masked;
  EXPECT_FALSE(samples_on_device(request, 100));
  request.masked = {};
  const auto refused = [&](auto change) {
    SamplingParams changed;
    change(changed);
    request.params = &changed;
    EXPECT_FALSE(samples_on_device(request, 100));
  };
  refused([](SamplingParams& p) { p.logit_bias = {{3, 1.0F}}; });
  refused([](SamplingParams& p) { p.repetition_penalty = 1.1F; });
  refused([](SamplingParams& p) { p.presence_penalty = 0.1F; });
  refused([](SamplingParams& p) { p.frequency_penalty = 0.1F; });
}

}  // namespace
}  // namespace folio::cuda
