#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <set>

#include "tests/engine/sampling/naive_sampler.h"

namespace folio {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

class SamplerTest : public ::testing::Test {
 protected:
  SampledToken sample(std::vector<float> logits) {
    const SampleRequest request{0, &params_, index_, position_, tokens_, num_prompt_, masked_};
    return sample_row(request, logits, scratch_);
  }
  std::set<TokenId> ids_of_draws(const std::vector<float>& logits, int draws = 400) {
    std::set<TokenId> ids;
    for (position_ = 0; position_ < draws; ++position_) ids.insert(sample(logits).id);
    return ids;
  }
  using Ids = std::set<TokenId>;
  SamplingParams params_;
  std::int32_t index_ = 0;
  std::int64_t position_ = 0;
  std::vector<TokenId> tokens_;
  std::int64_t num_prompt_ = 0;
  std::vector<TokenId> masked_;
  SamplerScratch scratch_;
};

TEST_F(SamplerTest, GreedyTakesTheLowestOfTheLargest) {
  params_.temperature = 0.0F;
  EXPECT_EQ(sample({1, 5, 5, 2}).id, 1);
  EXPECT_EQ(sample({-3}).id, 0);
  params_.temperature = 1.0F;
  params_.top_k = 1;
  EXPECT_EQ(sample({1, 5, 5, 2}).id, 1);
}

TEST_F(SamplerTest, BiasComesFirstAndLogprobsDoNotSeeIt) {
  params_.temperature = 0.0F;
  params_.num_logprobs = 2;
  params_.logit_bias = {{3, 100.0F}, {0, -1.0F}};
  const SampledToken sampled = sample({1, 2, 3, -4});
  const std::vector<float> raw = {1, 2, 3, -4};
  EXPECT_EQ(sampled.id, 3);
  EXPECT_NEAR(sampled.logprob, testing::naive_logprobs(raw)[3], 1e-6);
  ASSERT_EQ(sampled.top.size(), 2U);
  EXPECT_EQ(sampled.top[0].id, 2);
  EXPECT_EQ(sampled.top[1].id, 1);
}

TEST_F(SamplerTest, RepetitionIsOverPromptAndOutputOthersOverOutput) {
  params_.temperature = 0.0F;
  tokens_ = {0, 0, 1, 1};
  num_prompt_ = 2;
  params_.repetition_penalty = 2.0F;  // 4 -> 2, 5 -> 2.5
  EXPECT_EQ(sample({4, 5, 2.6F}).id, 2);
  EXPECT_EQ(sample({-4, -3, -7}).id, 1) << "negative logits are multiplied: -8, -6, -7";
  params_.repetition_penalty = 1.0F;
  params_.presence_penalty = 1.5F;  // once for token 1, none for token 0
  EXPECT_EQ(sample({3.9F, 5, 0}).id, 0);
  EXPECT_EQ(sample({3.4F, 5, 0}).id, 1);
  params_.presence_penalty = 0.0F;
  params_.frequency_penalty = 1.0F;  // twice for token 1
  EXPECT_EQ(sample({3.1F, 5, 0}).id, 0);
  EXPECT_EQ(sample({2.9F, 5, 0}).id, 1);
  tokens_.clear();
  EXPECT_EQ(sample({3.1F, 5, 0}).id, 1) << "counts of the row before are gone";
}

TEST_F(SamplerTest, MaskedIdsAreNotGivenUnlessNothingElseIsThere) {
  masked_ = {1, 1, 2};
  EXPECT_EQ(ids_of_draws({1, 9, 9, 1}), (Ids{0, 3}));
  params_.temperature = 0.0F;
  EXPECT_EQ(sample({1, 9, 9, 1}).id, 0);
  params_.logit_bias = {{1, 1e9F}};
  EXPECT_EQ(sample({1, 9, 9, 1}).id, 0) << "a bias does not lift a mask";
  params_.logit_bias.clear();
  masked_ = {0, 1, 0};
  EXPECT_EQ(sample({1, 9}).id, 1);
  params_.temperature = 1.0F;
  EXPECT_EQ(ids_of_draws({1, 1}), (Ids{0, 1}));
  params_.num_logprobs = 0;
  EXPECT_NEAR(sample({1, 1}).logprob, std::log(0.5), 1e-6);
}

TEST_F(SamplerTest, TopKTopPMinPKeepWhatTheySay) {
  const std::vector<float> logits = {0, 2, 1, 2, 1, -1};
  params_.top_k = 3;  // 1, 3 and the lower of the equal 2 and 4
  EXPECT_EQ(ids_of_draws(logits), (Ids{1, 2, 3}));
  for (const std::int32_t off : {0, 6, 7, std::numeric_limits<std::int32_t>::max(), -1}) {
    params_.top_k = off;
    EXPECT_EQ(ids_of_draws(logits).size(), 6U) << off;
  }
  params_.top_k = 0;
  params_.min_p = 0.3F;  // e^-1 = 0.37 stays, e^-2 goes
  EXPECT_EQ(ids_of_draws(logits), (Ids{1, 2, 3, 4}));
  params_.min_p = 1.0F;
  EXPECT_EQ(ids_of_draws(logits), (Ids{1, 3}));
  params_.min_p = 0.0F;
  params_.top_p = 0.5F;  // the two best weigh 0.66
  EXPECT_EQ(ids_of_draws(logits), (Ids{1, 3}));
  params_.top_p = 1e-9F;
  EXPECT_EQ(ids_of_draws(logits), (Ids{1}));
  params_.top_p = 0.5F;
  params_.top_k = 2;  // after top_k each of the two weighs a half
  EXPECT_EQ(ids_of_draws(logits), (Ids{1}));
}

TEST_F(SamplerTest, ANarrowTopPOfAFlatRowCountsExactly) {
  const std::vector<float> flat(20'000, 1.0F);
  for (const float top_p : {0.25F, 0.75F}) {  // 5,000 and 15,000 ids: more than the first tries look at
    params_.top_p = top_p;
    const Ids ids = ids_of_draws(flat, 300);
    EXPECT_LT(*ids.rbegin(), static_cast<TokenId>(20'000 * top_p));
    EXPECT_GT(*ids.rbegin(), static_cast<TokenId>(20'000 * top_p * 0.95F));
  }
}

TEST_F(SamplerTest, ARowDependsOnlyOnItsOwnArguments) {
  std::vector<float> logits(1000);
  std::mt19937 random(4);
  for (float& logit : logits) logit = static_cast<float>(random() % 1000) * 0.005F;
  params_.seed = 7;
  params_.num_logprobs = 3;
  const SampledToken first = sample(logits);
  SamplingParams other;
  other.top_p = 0.9F;
  other.frequency_penalty = 1.0F;
  const std::vector<TokenId> other_tokens = {1, 2, 3};
  std::vector<float> other_row(5000, 0.5F);
  sample_row({0, &other, 0, 0, other_tokens, 1, {}}, other_row, scratch_);
  const SampledToken again = sample(logits);
  EXPECT_EQ(again.id, first.id);
  EXPECT_EQ(std::memcmp(&again.logprob, &first.logprob, sizeof(float)), 0);
  std::set<TokenId> by_seed;
  for (params_.seed = 0; params_.seed < 8; ++params_.seed) by_seed.insert(sample(logits).id);
  EXPECT_GT(by_seed.size(), 1U);
  std::set<TokenId> by_index;
  for (index_ = 0; index_ < 8; ++index_) by_index.insert(sample(logits).id);
  EXPECT_GT(by_index.size(), 1U);
}

TEST_F(SamplerTest, ExtremeParametersGiveIdsAndFiniteLogprobs) {
  std::mt19937 random(8);
  tokens_ = {0, 1, 2, 3, 4, -1, 1000};
  num_prompt_ = 3;
  params_.num_logprobs = 5;
  for (int i = 0; i < 3000; ++i) {
    const auto pick = [&](std::initializer_list<float> from) { return from.begin()[random() % from.size()]; };
    params_.temperature = pick({0, 1e-45F, 1e-38F, 1e-9F, 1, 1e9F, 3e38F, kInfinity});
    params_.top_k = static_cast<std::int32_t>(pick({-2e9F, 0, 1, 3, 99, 100, 101, 2e9F}));
    params_.top_p = pick({0, 1e-30F, 0.5F, 1, 1.5F});
    params_.min_p = pick({0, 1e-45F, 1e-30F, 0.5F, 1, 2});
    params_.repetition_penalty = pick({1, 1e-9F, 1e9F, 3e38F});
    params_.presence_penalty = pick({0, 1e9F, -1e9F, 3e38F});
    params_.frequency_penalty = pick({0, 1e9F, -1e9F, 3e38F, -3e38F});
    params_.logit_bias = {{static_cast<TokenId>(random() % 100), pick({1e9F, -1e9F, 3e38F, -3e38F})}};
    masked_ = {static_cast<TokenId>(random() % 100), -5, 100};
    position_ = i;
    std::vector<float> logits(100);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) * pick({0.01F, 1e30F, -3e35F});
    const SampledToken sampled = sample(logits);
    ASSERT_GE(sampled.id, 0);
    ASSERT_LT(sampled.id, 100);
    ASSERT_NE(sampled.id, masked_[0]);
    ASSERT_LE(sampled.logprob, 0.0F);
    ASSERT_GE(sampled.logprob, kLogprobFloor);
    for (const TokenLogprob& entry : sampled.top) ASSERT_TRUE(std::isfinite(entry.logprob));
  }
}

TEST_F(SamplerTest, ATinyTemperatureIsGreedy) {
  params_.temperature = 1e-9F;
  EXPECT_EQ(ids_of_draws({1, 5, 4.999F, 2}), (Ids{1}));
}

TEST_F(SamplerTest, HugeBiasesDecide) {
  params_.logit_bias = {{2, 1e9F}};
  EXPECT_EQ(ids_of_draws({1, 5, -4, 2}), (Ids{2}));
  params_.logit_bias = {{0, -1e9F}, {1, -1e9F}};
  EXPECT_EQ(ids_of_draws({1, 5, 1, 2}), (Ids{2, 3}));
}

TEST_F(SamplerTest, BrokenLogitsNeverCrashAndAreNotChosen) {
  params_.num_logprobs = 4;
  for (const float temperature : {0.0F, 1.0F}) {
    for (const float top_p : {1.0F, 0.9F}) {
      for (const float min_p : {0.0F, 0.1F}) {
        params_.temperature = temperature;
        params_.top_p = top_p;
        params_.min_p = min_p;
        EXPECT_EQ(ids_of_draws({kNan, -kInfinity, 2, kNan}, 20), (Ids{2}));
        EXPECT_EQ(ids_of_draws({kNan, kNan}, 20), (Ids{kNoToken}));
        EXPECT_EQ(ids_of_draws({-kInfinity, -kInfinity, kNan}, 20), (Ids{kNoToken}));
        EXPECT_EQ(ids_of_draws({1, kInfinity, 2}, 20), (Ids{1}));
        const SampledToken sampled = sample({kNan, -kInfinity, 2, 1});
        EXPECT_EQ(sampled.top.size(), 2U);
        EXPECT_TRUE(std::isfinite(sampled.logprob));
      }
    }
  }
}

TEST_F(SamplerTest, WithoutANumberThereIsNoTokenWhateverIsAsked) {
  std::vector<float> broken(300, kNan);
  params_.num_logprobs = 3;
  tokens_ = {1, 2, 3};
  num_prompt_ = 1;
  masked_ = {4};
  for (const std::int32_t top_k : {0, 1, 5, 200}) {
    for (const float temperature : {0.0F, 0.5F}) {
      params_.top_k = top_k;
      params_.temperature = temperature;
      params_.repetition_penalty = 1.5F;
      params_.logit_bias = {{5, 100.0F}};
      const SampledToken sampled = sample(broken);
      EXPECT_EQ(sampled.id, kNoToken);
      EXPECT_TRUE(sampled.top.empty());
    }
  }
  broken[299] = -3.0F;
  EXPECT_EQ(sample(broken).id, 299);
}

// A prompt's token is scored as if it had been sampled there, to the bit.
TEST_F(SamplerTest, ScoresAreTheLogprobsOfSampling) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0F, 4.0F);
  for (const std::size_t vocab : {1U, 5U, 257U, 5000U}) {
    std::vector<float> logits(vocab);
    for (float& logit : logits) logit = normal(random);
    params_.num_logprobs = 4;
    params_.temperature = 2.0F;
    for (position_ = 0; position_ < 50; ++position_) {
      const SampledToken sampled = sample(logits);
      const SampledToken scored = score_row({0, sampled.id, 4}, logits, scratch_);
      ASSERT_EQ(scored.id, sampled.id);
      EXPECT_EQ(std::memcmp(&scored.logprob, &sampled.logprob, sizeof(float)), 0);
      ASSERT_EQ(scored.top.size(), sampled.top.size());
      for (std::size_t i = 0; i < scored.top.size(); ++i) {
        EXPECT_EQ(scored.top[i].id, sampled.top[i].id);
        EXPECT_EQ(std::memcmp(&scored.top[i].logprob, &sampled.top[i].logprob, sizeof(float)), 0);
      }
    }
    EXPECT_TRUE(score_row({0, 0, 0}, logits, scratch_).top.empty());
  }
  EXPECT_EQ(score_row({0, 1, 2}, std::vector<float>{kNan, kNan}, scratch_).id, kNoToken);
  const SampledToken unlikely = score_row({0, 1, 2}, std::vector<float>{1.0F, -kInfinity, kNan}, scratch_);
  EXPECT_EQ(unlikely.logprob, kLogprobFloor);
  EXPECT_EQ(unlikely.top.size(), 1U);
}

// 64 of 2048 weigh something. A top_k up to that many is drawn from a list, a larger one from the whole row: the same
// sums in the same order, so the same ids.
TEST_F(SamplerTest, TheListAndTheRowDrawTheSame) {
  std::mt19937 random(8);
  std::vector<float> logits(2048, -1000.0F);
  for (std::size_t i = 0; i < 64; ++i) logits[i * 31 + 7] = static_cast<float>(random() % 40) / 10.0F;
  for (const float top_p : {1.0F, 0.9F, 0.5F}) {
    for (const float min_p : {0.0F, 0.1F}) {
      params_.top_p = top_p;
      params_.min_p = min_p;
      for (position_ = 0; position_ < 300; ++position_) {
        params_.top_k = 64;
        const TokenId listed = sample(logits).id;
        for (const std::int32_t top_k : {65, 1000, 2047}) {
          params_.top_k = top_k;
          ASSERT_EQ(sample(logits).id, listed) << top_p << ' ' << min_p << ' ' << top_k;
        }
      }
    }
  }
}

TEST_F(SamplerTest, LogprobsOnlyWhenAsked) {
  EXPECT_TRUE(sample({1, 2}).top.empty());
  params_.num_logprobs = 0;
  EXPECT_TRUE(sample({1, 2}).top.empty());
  params_.num_logprobs = 20;
  EXPECT_EQ(sample({1, 2}).top.size(), 2U) << "no more than there are";
}

}  // namespace
}  // namespace folio
