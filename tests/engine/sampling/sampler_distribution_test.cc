// Do the draws follow the distribution that the parameters describe? Chi-square of 40,000 draws with fixed seeds
// against a plain twin in doubles; and, so that the test is known to see a wrong rule, against the distributions of
// rules that are wrong in one point each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "engine/sampling/sampler.h"

namespace folio {
namespace {

constexpr std::size_t kVocab = 30;
constexpr int kDraws = 40'000;
using Distribution = std::vector<double>;

struct Setting {
  std::vector<float> logits;
  SamplingParams params;
  std::vector<TokenId> tokens;  // prompt, then output
  std::int64_t num_prompt = 0;
  std::vector<TokenId> masked;

  SampleRequest at(std::int64_t position, std::int32_t index = 0) const {
    return {0, &params, index, position, tokens, num_prompt, masked};
  }
};

// The order of the rules, as switches that a wrong rule changes.
struct Rules {
  bool bias_after_temperature = false;
  bool repetition_over_output_only = false;
  bool repetition_divides_negative = false;
  bool others_over_prompt_too = false;
  bool presence_for_each_time = false;
  bool frequency_once = false;
  bool temperature_last = false;   // cuts see the distribution before it
  bool top_p_leaves_last = false;  // the token that reaches top_p is not kept
  bool top_p_first = false;        // its share is of all, not of what min_p and top_k left
  bool min_p_of_one = false;       // min_p itself is the bound, not its share of the best
  bool top_k_one_more = false;
  bool masked_may_come = false;
};

class Twin {
 public:
  Twin(const Setting& setting, const Rules& rules) : s_(setting), rules_(rules) {}

  Distribution distribution() {
    for (const float logit : s_.logits) logits_.push_back(static_cast<double>(logit));
    if (!rules_.bias_after_temperature) add_bias();
    penalise();
    if (!rules_.masked_may_come) {
      for (const TokenId id : s_.masked) logit(id) = -INFINITY;
    }
    const double temperature = static_cast<double>(s_.params.temperature);
    if (!rules_.temperature_last) scale(temperature);
    if (rules_.bias_after_temperature) add_bias();
    Distribution kept = cut(softmax());
    if (!rules_.temperature_last) return kept;
    for (double& p : kept) p = std::pow(p, 1 / temperature);
    return normalised(std::move(kept));
  }

 private:
  double& logit(TokenId id) { return logits_[static_cast<std::size_t>(id)]; }
  void scale(double temperature) {
    for (double& l : logits_) l /= temperature;
  }
  void add_bias() {
    for (const auto& [id, bias] : s_.params.logit_bias) logit(id) += static_cast<double>(bias);
  }

  void penalise() {
    std::map<TokenId, int> all;
    std::map<TokenId, int> output;
    for (std::size_t i = 0; i < s_.tokens.size(); ++i) {
      const bool is_output = i >= static_cast<std::size_t>(s_.num_prompt);
      if (is_output || !rules_.repetition_over_output_only) ++all[s_.tokens[i]];
      if (is_output || rules_.others_over_prompt_too) ++output[s_.tokens[i]];
    }
    const double repetition = static_cast<double>(s_.params.repetition_penalty);
    for (const auto& [id, count] : all) {
      const bool divides = logit(id) > 0 || rules_.repetition_divides_negative;
      logit(id) = divides ? logit(id) / repetition : logit(id) * repetition;
    }
    for (const auto& [id, count] : output) {
      logit(id) -= static_cast<double>(s_.params.presence_penalty) * (rules_.presence_for_each_time ? count : 1);
      logit(id) -= static_cast<double>(s_.params.frequency_penalty) * (rules_.frequency_once ? 1 : count);
    }
  }

  static Distribution normalised(Distribution p) {
    const double total = std::accumulate(p.begin(), p.end(), 0.0);
    for (double& x : p) x /= total;
    return p;
  }
  Distribution softmax() const {
    const double best = *std::max_element(logits_.begin(), logits_.end());
    Distribution p;
    for (const double l : logits_) p.push_back(std::exp(l - best));
    return normalised(std::move(p));
  }

  Distribution cut(const Distribution& p) const {
    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return p[a] > p[b]; });
    std::size_t kept = p.size();
    if (s_.params.min_p > 0) {
      const double least = static_cast<double>(s_.params.min_p) * (rules_.min_p_of_one ? 1 : p[order[0]]);
      while (kept > 1 && p[order[kept - 1]] < least) --kept;
    }
    if (s_.params.top_k > 0) {
      kept = std::min(kept, static_cast<std::size_t>(s_.params.top_k) + (rules_.top_k_one_more ? 1 : 0));
    }
    if (s_.params.top_p < 1) {
      double whole = 0;
      for (std::size_t i = 0; i < (rules_.top_p_first ? p.size() : kept); ++i) whole += p[order[i]];
      double sum = 0;
      std::size_t head = 0;
      while (head < kept && sum < static_cast<double>(s_.params.top_p) * whole) sum += p[order[head++]];
      if (rules_.top_p_leaves_last && head > 1) --head;
      kept = head;
    }
    Distribution result(p.size(), 0.0);
    for (std::size_t i = 0; i < kept; ++i) result[order[i]] = p[order[i]];
    return normalised(std::move(result));
  }

  const Setting& s_;
  const Rules rules_;
  std::vector<double> logits_;
};

Setting base() {
  Setting s;
  for (std::size_t i = 0; i < kVocab; ++i) s.logits.push_back(static_cast<float>(i * 7 % kVocab) * 0.11F - 1.3F);
  s.params.seed = 20261130;
  // The best ones and some others, once or several times, in the prompt and in the output.
  s.tokens = {17, 17, 4, 29, 21, 17, 8, 8, 8, 25, 12, 12};
  s.num_prompt = 6;
  return s;
}

// How far the draws are from a distribution, in standard deviations of chi-square; infinite when something came that
// weighs nothing. Cells that are expected less than 8 times are one.
double distance(const std::vector<int>& counts, const Distribution& expected) {
  const double draws = std::accumulate(counts.begin(), counts.end(), 0.0);
  double chi_square = 0;
  int cells = 0;
  double rest_expected = 0;
  double rest_count = 0;
  const auto add = [&](double count, double wanted) {
    chi_square += (count - wanted) * (count - wanted) / wanted;
    ++cells;
  };
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double wanted = expected[i] * draws;
    if (wanted == 0 && counts[i] > 0) return INFINITY;
    if (wanted >= 8) {
      add(counts[i], wanted);
    } else {
      rest_expected += wanted;
      rest_count += counts[i];
    }
  }
  if (rest_expected > 0) add(rest_count, rest_expected);
  const double freedom = std::max(cells - 1, 1);
  return (chi_square - freedom) / std::sqrt(2 * freedom);
}

std::vector<int> draw(const Setting& s) {
  std::vector<int> counts(kVocab, 0);
  SamplerScratch scratch;
  std::vector<float> row = s.logits;
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sample_row(s.at(i), row, scratch).id)];
  return counts;
}

struct Case {
  const char* name;
  std::function<void(Setting&)> set;
  std::vector<std::function<void(Rules&)>> wrong;  // rules that this setting shows to be wrong
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"plain", [](Setting&) {}, {}},
      {"temperature below one", [](Setting& s) { s.params.temperature = 0.6F; }, {}},
      {"temperature above one", [](Setting& s) { s.params.temperature = 2.5F; }, {}},
      {"top_k", [](Setting& s) { s.params.top_k = 7; }, {[](Rules& r) { r.top_k_one_more = true; }}},
      {"top_p", [](Setting& s) { s.params.top_p = 0.7F; }, {[](Rules& r) { r.top_p_leaves_last = true; }}},
      {"min_p", [](Setting& s) { s.params.min_p = 0.2F; }, {[](Rules& r) { r.min_p_of_one = true; }}},
      {"top_k then top_p",
       [](Setting& s) {
         s.params.top_k = 8;
         s.params.top_p = 0.6F;
       },
       {[](Rules& r) { r.top_p_first = true; }}},
      {"min_p then top_p",
       [](Setting& s) {
         s.params.min_p = 0.3F;
         s.params.top_p = 0.6F;
       },
       {[](Rules& r) { r.top_p_first = true; }}},
      {"temperature then top_p",
       [](Setting& s) {
         s.params.temperature = 0.5F;
         s.params.top_p = 0.8F;
       },
       {[](Rules& r) { r.temperature_last = true; }}},
      {"temperature then min_p",
       [](Setting& s) {
         s.params.temperature = 2.0F;
         s.params.min_p = 0.25F;
       },
       {[](Rules& r) { r.temperature_last = true; }}},
      {"bias",
       [](Setting& s) {
         s.params.temperature = 0.7F;
         s.params.logit_bias = {{3, 1.0F}, {17, -1.5F}};
       },
       {[](Rules& r) { r.bias_after_temperature = true; }}},
      {"bias before the cuts",
       [](Setting& s) {
         s.params.top_k = 4;
         s.params.logit_bias = {{0, 6.0F}};
       },
       {}},
      {"repetition", [](Setting& s) { s.params.repetition_penalty = 1.4F; }, {[](Rules& r) {
         r.repetition_over_output_only = true;
       }}},
      {"repetition of negative logits",
       [](Setting& s) {
         for (float& logit : s.logits) logit -= 3.2F;
         s.params.repetition_penalty = 1.4F;
       },
       {[](Rules& r) { r.repetition_divides_negative = true; }}},
      {"presence",
       [](Setting& s) { s.params.presence_penalty = 0.6F; },
       {[](Rules& r) { r.others_over_prompt_too = true; }, [](Rules& r) { r.presence_for_each_time = true; }}},
      {"frequency",
       [](Setting& s) { s.params.frequency_penalty = 0.4F; },
       {[](Rules& r) { r.others_over_prompt_too = true; }, [](Rules& r) { r.frequency_once = true; }}},
      {"masked",
       [](Setting& s) {
         s.masked = {17, 4};
       },
       {[](Rules& r) { r.masked_may_come = true; }}},
      {"everything",
       [](Setting& s) {
         s.params = {.temperature = 0.8F,
                     .top_k = 14,
                     .top_p = 0.85F,
                     .min_p = 0.1F,
                     .repetition_penalty = 1.3F,
                     .presence_penalty = 0.3F,
                     .frequency_penalty = 0.2F,
                     .seed = 7,
                     .logit_bias = {{5, 2.0F}, {17, -0.5F}}};
       },
       {[](Rules& r) { r.top_p_first = true; }, [](Rules& r) { r.top_p_leaves_last = true; },
        [](Rules& r) { r.repetition_over_output_only = true; }}},
  };
  return all;
}

TEST(SamplerDistribution, DrawsFollowTheRulesAndNoWrongOnes) {
  for (const Case& c : cases()) {
    Setting s = base();
    c.set(s);
    const std::vector<int> counts = draw(s);
    EXPECT_LT(distance(counts, Twin(s, {}).distribution()), 4) << c.name;
    for (std::size_t i = 0; i < c.wrong.size(); ++i) {
      Rules rules;
      c.wrong[i](rules);
      EXPECT_GT(distance(counts, Twin(s, rules).distribution()), 40)
          << c.name << ": wrong rule " << i << " is not seen";
    }
  }
}

// Temperature itself: a tenth more or less is seen.
TEST(SamplerDistribution, AnotherTemperatureIsSeen) {
  Setting s = base();
  s.params.temperature = 0.8F;
  const std::vector<int> counts = draw(s);
  for (const float other : {0.72F, 0.88F}) {
    s.params.temperature = other;
    EXPECT_GT(distance(counts, Twin(s, {}).distribution()), 20);
  }
}

// A large vocabulary with few draws a token goes through other code (whole rows in chunks).
TEST(SamplerDistribution, LargeRowsToo) {
  constexpr std::size_t kLarge = 20'000;
  Setting s = base();
  s.tokens.clear();
  s.num_prompt = 0;
  s.logits.assign(kLarge, 0.0F);
  for (std::size_t i = 0; i < kLarge; ++i) s.logits[i] = static_cast<float>(i * 7919 % kLarge) * 4e-4F;
  for (const bool cut : {false, true}) {
    if (cut) s.params.top_p = 0.5F;
    const Distribution expected = Twin(s, {}).distribution();
    // Bins of 500 ids, whose sums are known.
    Distribution bins(kLarge / 500, 0.0);
    for (std::size_t i = 0; i < kLarge; ++i) bins[i / 500] += expected[i];
    std::vector<int> counts(bins.size(), 0);
    SamplerScratch scratch;
    std::vector<float> row = s.logits;
    for (int i = 0; i < 10'000; ++i) {
      const auto id = static_cast<std::size_t>(sample_row(s.at(i), row, scratch).id);
      ASSERT_GT(expected[id], 0);
      ++counts[id / 500];
    }
    EXPECT_LT(distance(counts, bins), 4);
  }
}

// Of n answers each has a stream of its own: what two of them draw at the same positions is independent, and so is what
// one draws at neighbouring positions, or with neighbouring seeds.
TEST(SamplerDistribution, StreamsAreIndependent) {
  Setting s = base();
  s.params.top_k = 4;  // 16 pairs
  const Distribution p = Twin(s, {}).distribution();
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < kVocab; ++i) {
    if (p[i] > 0) kept.push_back(i);
  }
  ASSERT_EQ(kept.size(), 4U);
  SamplerScratch scratch;
  const auto id_at = [&](std::uint64_t seed, std::int32_t index, std::int64_t position) {
    std::vector<float> row = s.logits;
    s.params.seed = seed;
    const auto id = static_cast<std::size_t>(sample_row(s.at(position, index), row, scratch).id);
    return static_cast<std::size_t>(std::find(kept.begin(), kept.end(), id) - kept.begin());
  };
  Distribution pairs;
  for (const std::size_t a : kept) {
    for (const std::size_t b : kept) pairs.push_back(p[a] * p[b]);
  }
  const auto distance_of = [&](const std::function<std::pair<std::size_t, std::size_t>(int)>& pair) {
    std::vector<int> counts(16, 0);
    for (int i = 0; i < 20'000; ++i) {
      const auto [a, b] = pair(i);
      ++counts[a * 4 + b];
    }
    return distance(counts, pairs);
  };
  for (std::int32_t index = 1; index < 5; ++index) {
    EXPECT_LT(distance_of([&](int i) { return std::pair(id_at(3, 0, i), id_at(3, index, i)); }), 4) << index;
  }
  EXPECT_LT(distance_of([&](int i) { return std::pair(id_at(3, 0, 2 * i), id_at(3, 0, 2 * i + 1)); }), 4);
  EXPECT_LT(distance_of([&](int i) {
              const auto seed = static_cast<std::uint64_t>(2 * i);
              return std::pair(id_at(seed, 0, 5), id_at(seed + 1, 0, 5));
            }),
            4);
  EXPECT_GT(distance_of([&](int i) { return std::pair(id_at(3, 0, i), id_at(3, 0, i)); }), 40) << "one and the same";
}

}  // namespace
}  // namespace folio
