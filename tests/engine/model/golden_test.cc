// The downloaded models, teacher-forced on float32 continuations, and their perplexity. Limits:
// tests/reference/README.md.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "engine/model/load_model.h"
#include "tests/engine/kernels/levels.h"
#include "tests/engine/model/reference_cases.h"
#include "tests/engine/model/teacher_force.h"

namespace folio {
namespace {

bool slow_run() {
  return std::getenv("FOLIO_SLOW") != nullptr;
}

struct Params {
  std::string level, model, path;
  friend std::ostream& operator<<(std::ostream& out, const Params& p) { return out << p.model << " " << p.level; }
};

std::vector<Params> all_params() {
  std::vector<Params> params;
  for (const std::string& level : cpu::available_levels()) {
    params.push_back({level, "smollm2", kSmolPath});
    params.push_back({level, "gemma3", kGemmaPath});
  }
  return params;
}

struct Agreement {
  std::vector<double> differences;
  int positions = 0, top1 = 0, wide = 0, wide_top1 = 0, clear = 0, clear_top1 = 0;
  double largest_flipped_margin = 0;

  void add(double difference, bool same, double margin) {
    differences.push_back(std::fabs(difference));
    ++positions;
    top1 += same ? 1 : 0;
    wide += margin > 0.2 ? 1 : 0;
    wide_top1 += margin > 0.2 && same ? 1 : 0;
    clear += margin > 0.5 ? 1 : 0;
    clear_top1 += margin > 0.5 && same ? 1 : 0;
    if (!same) largest_flipped_margin = std::max(largest_flipped_margin, margin);
  }
  double mean() const {
    double total = 0;
    for (const double d : differences) total += d;
    return total / positions;
  }
  double quantile(double q) {
    std::sort(differences.begin(), differences.end());
    return differences[static_cast<std::size_t>(q * (positions - 1))];
  }
};

class Golden : public testing::TestWithParam<Params> {
 protected:
  void SetUp() override {
    if (access(GetParam().path.c_str(), R_OK) != 0) {
      GTEST_SKIP() << GetParam().path << " is not there: scripts/setup --model fetches it";
    }
  }
  // At the scalar level everything takes minutes: the full run has the label slow.
  bool short_run() const { return GetParam().level == "scalar" && !slow_run(); }
  // What the level computes in its own way.
  std::string kv() const { return cpu::has_own(GetParam().level, "f16") ? "f16" : "bf16"; }
  LoadedModel load(const std::string& kv_dtype) const {
    return load_model(GgufFile(GetParam().path), {.isa = GetParam().level, .kv_dtype = kv_dtype, .kv_blocks = 256});
  }
};

TEST_P(Golden, TeacherForcedOnFloat32Continuations) {
  const LoadedModel loaded = load(kv());
  const std::vector<GenerationCase> cases = read_generation(GetParam().model);
  const std::size_t num_cases = short_run() ? 5 : cases.size();
  Agreement agreement;
  for (std::size_t n = 0; n < num_cases; ++n) {
    const GenerationCase& c = cases[n];
    std::vector<TokenId> tokens = c.prompt;
    for (std::size_t i = 0; i + 1 < c.greedy.size(); ++i) tokens.push_back(c.greedy[i]);
    const int first = static_cast<int>(c.prompt.size()) - 1;
    teacher_force(*loaded.model, tokens, 256, first, [&](int position, std::span<const float> logits) {
      const auto i = static_cast<std::size_t>(position - first);
      agreement.add(log_probability(logits, c.greedy[i]) - c.logprobs[i], argmax(logits) == c.greedy[i], c.margins[i]);
    });
  }
  std::printf(
      "%s %s kv %s: %d positions, mean |dlogprob| %.4f, p99 %.3f, max %.3f, top-1 %.2f %%, largest margin flipped "
      "%.3f\n",
      GetParam().model.c_str(), GetParam().level.c_str(), kv().c_str(), agreement.positions, agreement.mean(),
      agreement.quantile(0.99), agreement.quantile(1.0), 100.0 * agreement.top1 / agreement.positions,
      agreement.largest_flipped_margin);
  EXPECT_LE(agreement.mean(), 0.04);
  EXPECT_LE(agreement.quantile(0.99), 0.45);
  EXPECT_LE(agreement.quantile(1.0), 1.0);
  EXPECT_GE(agreement.top1, 0.94 * agreement.positions);
  EXPECT_GE(agreement.wide_top1, 0.985 * agreement.wide);
  EXPECT_GE(agreement.clear_top1, 0.995 * agreement.clear);
  EXPECT_LE(agreement.largest_flipped_margin, 1.2);
}

// Protocol A of tests/reference/README.md: windows of 512, each from an empty cache.
struct Perplexity {
  double value = 0;
  std::vector<TokenId> bests;  // of every scored position
  std::vector<float> margins;  // best logit minus second
};
float margin_of(std::span<const float> logits, TokenId best) {
  float second = -INFINITY;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i != static_cast<std::size_t>(best)) second = std::max(second, logits[i]);
  }
  return logits[static_cast<std::size_t>(best)] - second;
}
Perplexity measure_perplexity(Decoder& model, const PerplexityText& text) {
  Perplexity result;
  double nll = 0;
  for (std::size_t begin = 0; begin < text.tokens.size(); begin += 512) {
    const std::size_t end = std::min(begin + 512, text.tokens.size());
    if (end - begin < 2) break;
    std::vector<TokenId> window(text.bos >= 0 ? 1 : 0, text.bos);
    for (std::size_t i = begin; i < end; ++i) window.push_back(text.tokens[i]);
    // The first text token is not scored.
    const int first = text.bos >= 0 ? 1 : 0;
    teacher_force(model, window, 256, first, [&](int position, std::span<const float> logits) {
      const auto next = static_cast<std::size_t>(position) + 1;
      if (next >= window.size()) return;
      nll -= log_probability(logits, window[next]);
      result.bests.push_back(argmax(logits));
      result.margins.push_back(margin_of(logits, result.bests.back()));
    });
  }
  result.value = std::exp(nll / static_cast<double>(result.bests.size()));
  return result;
}

// Share of positions with the same best token; of those where the first leads by more than `margin`.
double top1_agreement(const Perplexity& a, const Perplexity& b, float margin) {
  int same = 0;
  int all = 0;
  for (std::size_t i = 0; i < a.bests.size(); ++i) {
    if (!(a.margins[i] > margin)) continue;
    ++all;
    same += a.bests[i] == b.bests[i] ? 1 : 0;
  }
  return static_cast<double>(same) / all;
}

TEST_P(Golden, PerplexityWithinOnePercent) {
  if (short_run()) GTEST_SKIP() << "at the scalar level this takes minutes: it runs with the label slow";
  const PerplexityText text = read_perplexity(GetParam().model);
  const Perplexity ours = measure_perplexity(*load(kv()).model, text);
  std::printf("%s %s kv %s: perplexity %.4f over %zu tokens, float32 %.4f (%+.2f %%)\n", GetParam().model.c_str(),
              GetParam().level.c_str(), kv().c_str(), ours.value, ours.bests.size(), text.perplexity_a,
              100 * (ours.value / text.perplexity_a - 1));
  EXPECT_NEAR(ours.value / text.perplexity_a, 1.0, 0.01);
}

// The other KV types against f16. f32 is the yardstick of top-1: any change of a last bit moves activations over the
// steps of their own int8 rounding, so that near ties fall anew even where K and V are kept better.
TEST_P(Golden, KvTypesKeepTheQualityOfF16) {
  if (GetParam().level != cpu::available_levels().back() && !slow_run()) {
    GTEST_SKIP() << "runs at the best level of this machine; with the label slow at every level";
  }
  const PerplexityText text = read_perplexity(GetParam().model);
  const Perplexity f16 = measure_perplexity(*load("f16").model, text);
  const struct {
    const char* name;
    double change, agreement, clear_agreement;
  } limits[] = {{"f32", 0.005, 0.94, 0.995}, {"bf16", 0.0075, 0.94, 0.995}, {"int8", 0.01, 0.93, 0.985}};
  for (const auto& kv : limits) {
    const Perplexity other = measure_perplexity(*load(kv.name).model, text);
    const double all = top1_agreement(f16, other, 0.0F);
    const double clear = top1_agreement(f16, other, 0.5F);
    std::printf("%s %s kv %s: perplexity %.4f (%+.2f %% of f16), top-1 as f16 %.2f %%, margin over 0.5 %.2f %%\n",
                GetParam().model.c_str(), GetParam().level.c_str(), kv.name, other.value,
                100 * (other.value / f16.value - 1), 100 * all, 100 * clear);
    EXPECT_NEAR(other.value / f16.value, 1.0, kv.change) << kv.name;
    EXPECT_GE(all, kv.agreement) << kv.name;
    EXPECT_GE(clear, kv.clear_agreement) << kv.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Golden, testing::ValuesIn(all_params()),
                         [](const auto& p) { return p.param.model + "_" + p.param.level; });

}  // namespace
}  // namespace folio
