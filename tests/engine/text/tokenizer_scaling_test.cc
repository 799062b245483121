// Time grows as n log n whatever the text is. Ratios, not seconds: four times the text takes four to five times as long
// where the algorithm is right, sixteen where it is quadratic.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "tests/engine/text/vocabulary_builder.h"

namespace folio {
namespace {

using testing::VocabularyBuilder;

std::string repeat(const std::string& part, std::size_t size) {
  std::string text;
  while (text.size() < size) text += part;
  return text;
}

double cpu_seconds() {  // of this thread, so that the neighbours hardly count
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double seconds_of(const Tokenizer& tokenizer, const std::string& text, bool parse_special) {
  double best = 1e9;
  for (int run = 0; run < 3; ++run) {
    const double start = cpu_seconds();
    const std::vector<TokenId> ids = testing::encode(tokenizer, text, parse_special);
    best = std::min(best, cpu_seconds() - start);
  }
  return best;
}

// Powers of two of some letters and spaces, and many control tokens that share beginnings.
VocabularyBuilder make_builder(const std::string& model) {
  VocabularyBuilder builder;
  builder.model = model;
  if (model == "gpt2") builder.pre = "smollm";
  builder.add_bytes();
  for (const std::string& part : {std::string("a"), std::string(model == "gpt2" ? "\xC4\xA0" : "\xE2\x96\x81")}) {
    if (model == "llama") builder.add(part);
    std::string piece = part;
    for (int i = 0; i < 5; ++i) {
      builder.merges.push_back(piece + ' ' + piece);
      piece += piece;
      builder.add(piece, TokenKind::kNormal, static_cast<float>(-i));
    }
  }
  for (int i = 0; i < 2000; ++i) builder.add("<|im_start" + std::to_string(i) + "|>", TokenKind::kControl);
  builder.add("<|im_start|>", TokenKind::kControl);
  return builder;
}

class Scaling : public ::testing::TestWithParam<const char*> {};

TEST_P(Scaling, FourTimesTheTextIsNotSixteenTimesTheTime) {
  const auto tokenizer = make_builder(GetParam()).build();
  for (const char* part :
       {"a", " ", "7", "\n", "\xF0\x9F\xA6\x99", "\xFF", "<|im_start|>", "<|im_start1", "a ", "a  a\n"}) {
    for (const bool parse_special : {false, true}) {
      const double small = seconds_of(*tokenizer, repeat(part, 100'000), parse_special);
      const double large = seconds_of(*tokenizer, repeat(part, 400'000), parse_special);
      // Below 0.2 s caches and the clock say more than the algorithm; a quadratic one takes many seconds.
      EXPECT_LT(large, std::max(0.2, 10 * small)) << "many of " << part << ", parse_special " << parse_special;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Scaling, ::testing::Values("gpt2", "llama"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace folio
