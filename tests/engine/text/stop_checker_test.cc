#include "engine/text/stop_checker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <random>

#include "tests/engine/text/plain_text.h"

namespace folio {
namespace {

StopChecker checker_of(const Tokenizer& tokenizer, const StoppingParams& params, bool skip_special = true) {
  return {std::make_shared<const StopRules>(tokenizer, params, skip_special), params.max_tokens};
}

StopOutcome run(const Tokenizer& tokenizer, const StoppingParams& params, const std::vector<TokenId>& tokens,
                bool skip_special = true) {
  StopChecker checker = checker_of(tokenizer, params, skip_special);
  StopOutcome outcome;
  for (const TokenId token : tokens) {
    outcome.verdict = checker.push(token, outcome.text);
    outcome.num_tokens = checker.num_tokens();
    if (outcome.verdict.finish != FinishReason::kNone) return outcome;
  }
  checker.finish(outcome.text);
  return outcome;
}

std::string random_word(std::mt19937& random, std::size_t max) {
  std::string word(1 + random() % max, 'a');
  for (char& c : word) c = random() % 3 == 0 ? 'b' : 'a';
  return word;
}

TEST(StopChecker, EqualsTheNaiveRules) {
  std::mt19937 random(7);
  int num_by_reason[8] = {};
  for (int round = 0; round < 30'000; ++round) {
    std::vector<std::string> pieces;
    for (int i = 0; i < 6; ++i) pieces.push_back(random_word(random, 5));
    pieces.emplace_back();
    const PieceTokenizer tokenizer(pieces);
    StoppingParams params;
    for (std::size_t i = random() % 4; i > 0; --i) params.stop.push_back(random_word(random, 9));
    if (random() % 2 == 0) params.min_tokens = random() % 6;
    if (random() % 2 == 0) params.max_tokens = 1 + random() % 12;
    if (random() % 4 == 0) params.stop_token_ids = {static_cast<TokenId>(random() % 7)};
    params.ignore_eos = random() % 4 == 0;
    params.include_stop = random() % 2 == 0;
    const bool skip_special = random() % 2 == 0;
    std::vector<TokenId> tokens(random() % 16);
    for (TokenId& token : tokens) token = static_cast<TokenId>(random() % (random() % 3 == 0 ? 8 : 7));

    const StopOutcome got = run(tokenizer, params, tokens, skip_special);
    const StopOutcome want = plain_stops(tokenizer, params, tokens, skip_special);
    ASSERT_EQ(got.text, want.text);
    ASSERT_EQ(got.verdict.finish, want.verdict.finish);
    ASSERT_EQ(got.verdict.stop_token, want.verdict.stop_token);
    ASSERT_EQ(got.verdict.stop_index, want.verdict.stop_index);
    ASSERT_EQ(got.num_tokens, want.num_tokens);
    ++num_by_reason[static_cast<int>(got.verdict.finish)];
  }
  for (const FinishReason reason :
       {FinishReason::kNone, FinishReason::kStopToken, FinishReason::kStopString, FinishReason::kLength}) {
    EXPECT_GT(num_by_reason[static_cast<int>(reason)], 500)
        << "the cases hardly meet reason " << static_cast<int>(reason);
  }
}

TEST(StopChecker, HoldsOnlyWhatMayBeginAStop) {
  const PieceTokenizer tokenizer({"one ", "END", "EN", "D.", "x"});
  StoppingParams params;
  params.stop = {"ENDED", "END."};
  StopChecker checker = checker_of(tokenizer, params);
  std::string text;
  checker.push(0, text);
  EXPECT_EQ(text, "one ") << "nothing of it begins a stop";
  checker.push(1, text);
  EXPECT_EQ(text, "one ");
  checker.push(2, text);  // ENDEN: only "EN" may still begin one
  EXPECT_EQ(text, "one END");
  const StopVerdict verdict = checker.push(3, text);
  EXPECT_EQ(verdict.finish, FinishReason::kStopString);
  EXPECT_EQ(verdict.stop_index, 1);
  EXPECT_EQ(text, "one END");
  checker.finish(text);
  EXPECT_EQ(text, "one END") << "nothing comes twice";
}

TEST(StopChecker, FalseAlarmsAreReleasedOnceAtTheEnd) {  // field report S06
  const PieceTokenizer tokenizer({"The ", "quick ", "brown ", "fox"});
  const std::string whole = "The quick brown fox";
  for (const std::vector<std::string>& stops :
       {std::vector<std::string>{"fox@@"}, {"ick b@@"}, {"ick br@@", "k b##"}, {"x@@"}, {whole + "@"}}) {
    StoppingParams params;
    params.stop = stops;
    params.max_tokens = 4;
    const StopOutcome limited = run(tokenizer, params, {0, 1, 2, 3});
    EXPECT_EQ(limited.text, whole);
    EXPECT_EQ(limited.verdict.finish, FinishReason::kLength);
    params.max_tokens = StoppingParams::kNoLimit;
    EXPECT_EQ(run(tokenizer, params, {0, 1, 2, 3, tokenizer.end()}).text, whole);
    EXPECT_EQ(run(tokenizer, params, {0, 1, 2, 3}).text, whole) << "ended from outside";
  }
}

TEST(StopChecker, TheStopTokenComesFirstAndAddsNoText) {
  const PieceTokenizer tokenizer({"a", "."});
  StoppingParams params;
  params.stop = {"."};
  params.stop_token_ids = {1};
  params.max_tokens = 2;
  const StopOutcome outcome = run(tokenizer, params, {0, 1});
  EXPECT_EQ(outcome.verdict.finish, FinishReason::kStopToken);
  EXPECT_EQ(outcome.verdict.stop_token, 1);
  EXPECT_EQ(outcome.text, "a");
  params.stop_token_ids.clear();
  EXPECT_EQ(run(tokenizer, params, {0, 1}).verdict.finish, FinishReason::kStopString) << "before the length";
}

TEST(StopChecker, MinTokensMasksEndsAndPutsOffStops) {
  const PieceTokenizer tokenizer({"ab", "c"});
  StoppingParams params;
  params.stop = {"b", "bc"};
  params.stop_token_ids = {1};
  params.min_tokens = 2;
  StopChecker checker = checker_of(tokenizer, params);
  std::string text;
  EXPECT_EQ(
      std::vector<TokenId>(checker.masked(checker.num_tokens()).begin(), checker.masked(checker.num_tokens()).end()),
      (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(checker.push(0, text).finish, FinishReason::kNone);
  EXPECT_EQ(checker.masked(checker.num_tokens()).size(), 2U);
  EXPECT_EQ(checker.push(0, text).finish, FinishReason::kNone);
  EXPECT_TRUE(checker.masked(checker.num_tokens()).empty());
  EXPECT_EQ(checker.push(0, text).finish, FinishReason::kStopString);
  EXPECT_EQ(text, "ababa");

  params.ignore_eos = true;
  const StopChecker other = checker_of(tokenizer, params);
  EXPECT_EQ(std::vector<TokenId>(other.masked(other.num_tokens()).begin(), other.masked(other.num_tokens()).end()),
            std::vector<TokenId>{1});
}

TEST(StopChecker, SequencesThatShareTheirRulesDoNotDisturbEachOther) {
  const PieceTokenizer tokenizer({"x", "a", "b", "c"});
  StoppingParams params;
  params.stop = {"bc", "abcab"};
  params.min_tokens = 1;
  const auto rules = std::make_shared<const StopRules>(tokenizer, params, true);
  StopChecker stops(rules, 3);
  StopChecker goes_on(rules, 5);
  std::string stopped;
  std::string whole;
  EXPECT_EQ(goes_on.push(1, whole).finish, FinishReason::kNone);  // a: held
  EXPECT_EQ(stops.masked(stops.num_tokens()).size(), 1U) << "its own count of tokens";
  EXPECT_TRUE(goes_on.masked(goes_on.num_tokens()).empty());
  EXPECT_EQ(stops.push(0, stopped).finish, FinishReason::kNone);
  EXPECT_EQ(stops.push(2, stopped).finish, FinishReason::kNone);  // xb: b is held
  EXPECT_EQ(goes_on.push(2, whole).finish, FinishReason::kNone);  // ab: held
  EXPECT_EQ(stopped, "x");
  EXPECT_EQ(whole, "");
  const StopVerdict verdict = stops.push(3, stopped);
  EXPECT_EQ(verdict.finish, FinishReason::kStopString);
  EXPECT_EQ(verdict.stop_index, 0);
  EXPECT_EQ(stopped, "x");
  EXPECT_EQ(goes_on.push(0, whole).finish, FinishReason::kNone);
  EXPECT_EQ(whole, "abx");
  EXPECT_EQ(goes_on.push(1, whole).finish, FinishReason::kNone);
  EXPECT_EQ(goes_on.push(0, whole).finish, FinishReason::kLength) << "its own limit";
  EXPECT_EQ(whole, "abxax");
}

TEST(StopChecker, CostPerTokenStaysFlatForTheWorstStops) {
  // Stops of 1 kB that agree with the whole output but for their last byte: each byte could mean going back 1 kB in
  // each of 64 stops, 2.5 billion comparisons in all. The bound is a hundred times what it takes.
  const PieceTokenizer tokenizer({"aaaa"});
  StoppingParams params;
  for (std::size_t i = 0; i < 64; ++i) params.stop.push_back(std::string(1000 - i, 'a') + "b");
  const std::vector<TokenId> tokens(10'000, 0);
  const std::clock_t start = std::clock();
  const StopOutcome outcome = run(tokenizer, params, tokens);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;  // of this process's CPU
  EXPECT_EQ(outcome.text.size(), 40'000U);
  EXPECT_LT(seconds, 1.0);
}

}  // namespace
}  // namespace folio
