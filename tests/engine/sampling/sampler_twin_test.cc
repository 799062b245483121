// The sampler against its plain twin, over random rows and parameters.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/sampling/sampler.h"
#include "tests/engine/sampling/naive_sampler.h"

namespace folio {
namespace {

struct Case {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> tokens;
  std::vector<TokenId> masked;
  SampleRequest request;
};

class CaseMaker {
 public:
  explicit CaseMaker(std::uint64_t seed) : random_(seed) {}
  // The request points into the case, which must stay where it is.
  void make(std::size_t vocab, Case& out) {
    out = {};
    fill_logits(vocab, out.logits);
    const auto id = [&] { return static_cast<TokenId>(random_() % vocab); };
    SamplingParams& params = out.params;
    params.temperature = pick({0.0F, 0.2F, 0.7F, 1.0F, 1.0F, 1.5F, 5.0F});
    if (chance(3)) params.top_k = static_cast<std::int32_t>(1 + random_() % (2 * vocab));
    if (chance(2)) params.top_p = pick({0.01F, 0.5F, 0.9F, 0.95F, 0.999F});
    if (chance(3)) params.min_p = pick({0.001F, 0.05F, 0.3F, 0.99F});
    if (chance(4)) params.repetition_penalty = pick({0.7F, 1.1F, 2.0F});
    if (chance(4)) params.presence_penalty = pick({-1.0F, 0.5F, 2.0F});
    if (chance(4)) params.frequency_penalty = pick({-0.3F, 0.2F, 1.0F});
    if (chance(4)) params.logit_bias = {{id(), pick({-100.0F, 3.0F, 100.0F})}};
    params.seed = random_();
    for (std::size_t i = random_() % 40; i > 0; --i) out.tokens.push_back(id());
    if (chance(3) && vocab > 2) out.masked = {id(), id()};
    out.request = {0,
                   &out.params,
                   static_cast<std::int32_t>(random_() % 4),
                   static_cast<std::int64_t>(random_() % 1000),
                   out.tokens,
                   static_cast<std::int64_t>(random_() % (out.tokens.size() + 1)),
                   out.masked};
  }

 private:
  bool chance(unsigned one_in) { return random_() % one_in == 0; }
  float pick(std::initializer_list<float> from) { return from.begin()[random_() % from.size()]; }
  void fill_logits(std::size_t vocab, std::vector<float>& logits) {
    std::normal_distribution<float> normal(0.0F, pick({0.01F, 1.0F, 4.0F}));
    const bool with_ties = chance(3);
    for (std::size_t i = 0; i < vocab; ++i) {
      const float value = normal(random_);
      logits.push_back(with_ties ? std::round(value * 4.0F) / 4.0F : value);
    }
  }
  std::mt19937_64 random_;
};

bool twin_agrees(const Case& c, TokenId id) {
  for (const double cut : {0.0, -1e-5, 1e-5}) {
    for (const double draw : {0.0, -1e-5, 1e-5}) {
      if (testing::naive_choice(c.request, c.logits, {draw, cut}) == id) return true;
    }
  }
  return false;
}

// Sizes around the lanes, chunks and groups of the row arithmetic, and above the sizes of the first tries for top_p.
TEST(SamplerTwin, ChoosesTheSameIds) {
  CaseMaker maker(11);
  SamplerScratch scratch;
  Case c;
  int at_once = 0;
  int cases = 0;
  const auto play = [&](std::size_t vocab, int count) {
    for (int i = 0; i < count; ++i, ++cases) {
      maker.make(vocab, c);
      std::vector<float> row = c.logits;
      const TokenId id = sample_row(c.request, row, scratch).id;
      if (testing::naive_choice(c.request, c.logits) == id) {
        ++at_once;
      } else {
        ASSERT_TRUE(twin_agrees(c, id)) << "vocabulary " << vocab << ", case " << i;
      }
    }
  };
  for (const std::size_t vocab : {1U, 2U, 3U, 15U, 16U, 17U, 100U, 127U, 128U, 129U, 255U, 256U, 257U})
    play(vocab, 400);
  play(1000, 500);
  play(6001, 100);
  play(20'000, 20);
  EXPECT_GT(at_once, cases * 999 / 1000);
}

TEST(SamplerTwin, LogprobsAreThoseOfTheRawRow) {
  CaseMaker maker(12);
  SamplerScratch scratch;
  Case c;
  for (int i = 0; i < 600; ++i) {
    maker.make(i % 10 == 0 ? 20'000 : 300, c);
    c.params.num_logprobs = i % 21;
    std::vector<float> row = c.logits;
    const SampledToken sampled = sample_row(c.request, row, scratch);
    const std::vector<double> exact = testing::naive_logprobs(c.logits);
    // 1e-6, and half a unit in the float's last place.
    const auto check = [&](TokenId id, float logprob) {
      const double wanted = exact[static_cast<std::size_t>(id)];
      EXPECT_NEAR(logprob, wanted, 1e-6 + 0x1p-24 * std::abs(wanted));
    };
    check(sampled.id, sampled.logprob);
    ASSERT_EQ(sampled.top.size(), static_cast<std::size_t>(i % 21));
    std::vector<TokenId> order(exact.size());
    for (std::size_t k = 0; k < order.size(); ++k) order[k] = static_cast<TokenId>(k);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return c.logits[static_cast<std::size_t>(a)] > c.logits[static_cast<std::size_t>(b)];
    });
    for (std::size_t k = 0; k < sampled.top.size(); ++k) {
      EXPECT_EQ(sampled.top[k].id, order[k]);
      check(sampled.top[k].id, sampled.top[k].logprob);
      if (sampled.top[k].id == sampled.id) {
        EXPECT_EQ(sampled.top[k].logprob, sampled.logprob);
      }
    }
  }
}

}  // namespace
}  // namespace folio
