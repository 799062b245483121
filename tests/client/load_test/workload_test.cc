#include "client/load_test/workload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <stdexcept>

namespace folio::client {
namespace {

using ::testing::HasSubstr;

// A wire that only tokenises: by spaces, or as `rule` says.
class Tokenizer : public Transport {
 public:
  std::vector<std::int32_t> tokenize(const std::string& text) override {
    ++num_calls;
    if (!refusal.empty()) throw std::runtime_error(refusal);
    std::vector<std::int32_t> ids;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      ids.push_back(static_cast<std::int32_t>(word.size() * 1000) + word[0]);
      if (static_cast<int>(word.size()) > longest) ids.push_back(1);
    }
    if (merges && ids.size() > 1) ids.pop_back();
    return ids;
  }
  ServedModel model() override { return {}; }
  std::unique_ptr<Call> start(const RequestSpec&, StreamListener&) override { return nullptr; }

  int longest = 4;      // longer words are two tokens
  bool merges = false;  // two words in a row are one token
  std::string refusal;
  int num_calls = 0;
};

Workload ids_workload(const WorkloadOptions& options, std::vector<TraceEntry> trace = {}) {
  return Workload(options, std::move(trace), 1000, {});
}

bool equal(const PlannedRequest& a, const PlannedRequest& b) {
  return a.spec.prompt == b.spec.prompt && a.spec.text == b.spec.text && a.spec.seed == b.spec.seed &&
         a.spec.max_tokens == b.spec.max_tokens && a.cancel_after == b.cancel_after;
}

TEST(Workload, ASeedAndANumberAreTheSameRequestWheneverAsked) {
  WorkloadOptions options;
  options.prompt_tokens = Lengths::parse("uniform:1,50");
  options.output_tokens = Lengths::parse("lognormal:40,0.5");
  options.cancel_fraction = 0.3;
  options.shared_prefix = 10;
  options.prefixes = 3;
  options.seed = 5;
  const Workload one = ids_workload(options);
  const Workload two = ids_workload(options);
  for (const std::int64_t number : {7, 3, 3, 0, 100}) EXPECT_TRUE(equal(one.request(number), two.request(number)));
  EXPECT_FALSE(equal(one.request(0), one.request(1)));
  options.seed = 6;
  EXPECT_FALSE(equal(one.request(0), ids_workload(options).request(0)));
}

TEST(Workload, LengthsAreExactAndIdsAreOfTheVocabulary) {
  WorkloadOptions options;
  options.prompt_tokens = Lengths(500);
  options.output_tokens = Lengths(9);
  const PlannedRequest request = ids_workload(options).request(0);
  EXPECT_EQ(request.spec.prompt.size(), 500U);
  EXPECT_EQ(request.spec.max_tokens, 9);
  EXPECT_FALSE(request.cancel_after);
  const auto [least, most] = std::minmax_element(request.spec.prompt.begin(), request.spec.prompt.end());
  EXPECT_GE(*least, 0);
  EXPECT_LT(*most, 1000);
  EXPECT_GT(*most, 900);
}

TEST(Workload, SharedPrefixesAreSharedAndAllOfThemAreUsed) {
  WorkloadOptions options;
  options.prompt_tokens = Lengths(4);
  options.shared_prefix = 20;
  options.prefixes = 3;
  const Workload workload = ids_workload(options);
  std::map<std::vector<std::int32_t>, int> beginnings;
  for (int i = 0; i < 300; ++i) {
    const std::vector<std::int32_t> prompt = workload.request(i).spec.prompt;
    ASSERT_EQ(prompt.size(), 24U);
    ++beginnings[{prompt.begin(), prompt.begin() + 20}];
  }
  EXPECT_EQ(beginnings.size(), 3U);
  for (const auto& [beginning, count] : beginnings) EXPECT_NEAR(count, 100, 30);
}

TEST(Workload, CancelsHaveTheirShareAndSpread) {
  WorkloadOptions options;
  options.output_tokens = Lengths(10);
  options.cancel_fraction = 0.25;
  const Workload workload = ids_workload(options);
  int num_cancels = 0;
  std::set<std::int64_t> after;
  for (int i = 0; i < 2000; ++i) {
    const PlannedRequest request = workload.request(i);
    if (!request.cancel_after) continue;
    ++num_cancels;
    after.insert(*request.cancel_after);
  }
  EXPECT_NEAR(num_cancels, 500, 60);
  EXPECT_EQ(after.size(), 10U);
  EXPECT_EQ(*after.begin(), 0);
  EXPECT_EQ(*after.rbegin(), 9);
}

TEST(Workload, ATraceSaysPromptsAndLengthsAndBeginsAgain) {
  TraceEntry text;
  text.prompt = "Once upon";
  text.output_tokens = 3;
  TraceEntry shared;
  shared.prompt_tokens = 30;
  shared.shared = {{"a", 10}, {"b", 5}};
  shared.output_tokens = 4;
  TraceEntry shorter = shared;
  shorter.prompt_tokens = 8;
  shorter.shared = {{"a", 8}};
  const Workload workload = ids_workload({}, {text, shared, shorter});
  EXPECT_EQ(workload.request(0).spec.text, "Once upon");
  EXPECT_TRUE(workload.request(0).spec.prompt.empty());
  const std::vector<std::int32_t> longer = workload.request(1).spec.prompt;
  const std::vector<std::int32_t> again = workload.request(4).spec.prompt;
  ASSERT_EQ(longer.size(), 30U);
  EXPECT_TRUE(std::equal(longer.begin(), longer.begin() + 15, again.begin()));
  EXPECT_FALSE(std::equal(longer.begin() + 15, longer.end(), again.begin() + 15));  // its own part differs
  const std::vector<std::int32_t> part = workload.request(2).spec.prompt;
  ASSERT_EQ(part.size(), 8U);
  EXPECT_TRUE(std::equal(part.begin(), part.end(), longer.begin()));
  EXPECT_EQ(workload.request(5).spec.max_tokens, 4);
}

TEST(Workload, SettingsReachTheRequest) {
  WorkloadOptions options;
  options.n = 3;
  options.temperature = 0.5F;
  options.top_p = 0.9F;
  options.top_k = 40;
  options.tenant = "t";
  options.ignore_eos = false;
  options.deadline = std::chrono::milliseconds(70);
  const RequestSpec spec = ids_workload(options).request(0).spec;
  EXPECT_EQ(spec.n, 3);
  EXPECT_EQ(spec.temperature, 0.5F);
  EXPECT_EQ(spec.top_p, 0.9F);
  EXPECT_EQ(spec.top_k, 40);
  EXPECT_EQ(spec.tenant, "t");
  EXPECT_FALSE(spec.ignore_eos);
  EXPECT_EQ(spec.deadline, std::chrono::milliseconds(70));
}

TEST(Words, ThoseOfOneTokenAreKeptAndSentAsIdsOrText) {
  Tokenizer tokenizer;
  const PromptWords words = find_words(tokenizer);
  ASSERT_EQ(words.words.size(), words.ids.size());
  EXPECT_TRUE(words.note.empty());
  for (const std::string& word : words.words) EXPECT_LE(word.size(), 5U) << word;  // with its space
  WorkloadOptions options;
  options.prompt_tokens = Lengths(60);
  options.prompts = PromptKind::kWords;
  const RequestSpec as_ids = Workload(options, {}, 0, words).request(1).spec;
  options.prompts = PromptKind::kText;
  const RequestSpec as_text = Workload(options, {}, 0, words).request(1).spec;
  EXPECT_EQ(as_ids.prompt.size(), 60U);
  EXPECT_TRUE(as_text.prompt.empty());
  EXPECT_EQ(tokenizer.tokenize(as_text.text), as_ids.prompt);
}

TEST(Words, AServerWithoutATokenizerGetsWords) {
  Tokenizer tokenizer;
  tokenizer.refusal = "HTTP 404";
  const PromptWords words = find_words(tokenizer);
  EXPECT_EQ(tokenizer.num_calls, 1);
  EXPECT_TRUE(words.ids.empty());
  EXPECT_GT(words.words.size(), 100U);
  EXPECT_THAT(words.note, HasSubstr("the server does not tokenise (HTTP 404)"));
  WorkloadOptions options;
  options.prompts = PromptKind::kWords;
  EXPECT_THROW(Workload(options, {}, 0, words), std::runtime_error);
}

TEST(Words, RowsThatAreNotTheirWordsAreRefused) {
  Tokenizer tokenizer;
  tokenizer.merges = true;
  EXPECT_THROW(find_words(tokenizer), std::runtime_error);
  Tokenizer letters;
  letters.longest = 0;
  EXPECT_THROW(find_words(letters), std::runtime_error);
}

TEST(Words, IdsWantAVocabulary) {
  EXPECT_THROW(Workload({}, {}, 0, {}), std::runtime_error);
}

}  // namespace
}  // namespace folio::client
