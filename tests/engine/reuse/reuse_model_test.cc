// The same with real models and real text: the downloaded ones, at the machine's best level, on two threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "tests/engine/model/reference_cases.h"
#include "tests/engine/reuse/cases.h"

namespace folio {
namespace {

// One model and its engine without any reuse, for all tests.
struct Real {
  explicit Real(const char* path, std::int32_t num_blocks)
      : file(path),
        plain(file,
              {.num_blocks = num_blocks, .threads = 2, .options = {.max_batch_tokens = 2048, .prefix_cache = false}}) {}
  ModelFile file;
  Stage plain;
  Answer alone(const GenerationRequest& request) { return plain.run(request); }
};

class ReuseModel : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (access(GetParam(), R_OK) != 0) GTEST_SKIP() << GetParam() << " is not there: scripts/setup fetches it";
  }
  static Real& real() {
    static std::map<std::string, std::unique_ptr<Real>> all;
    std::unique_ptr<Real>& one = all[GetParam()];
    if (!one) one = std::make_unique<Real>(GetParam(), 160);
    return *one;
  }
  static Stage::Setup setup(std::int32_t num_blocks, EngineOptions options = {}) {
    return {.num_blocks = num_blocks, .threads = 2, .options = options};
  }
};
class ReuseSmol : public ReuseModel {};
class ReuseGemma : public ReuseModel {};
INSTANTIATE_TEST_SUITE_P(SmolLM2, ReuseSmol, testing::Values(kSmolPath), [](const auto&) { return "135M"; });
INSTANTIATE_TEST_SUITE_P(Gemma3, ReuseGemma, testing::Values(kGemmaPath), [](const auto&) { return "270M"; });

// Prose, as long as asked for: an excerpt of the perplexity text.
std::vector<TokenId> excerpt(const char* model, std::size_t begin, std::size_t count) {
  const PerplexityText text = read_perplexity(model);
  const auto first = text.tokens.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

// Sixteen chats behind the same system text: hit, miss, off; one at a time and eight at a time.
TEST_P(ReuseSmol, ChatsBehindOneSystemTextAreAsWithoutACache) {
  const std::string system =
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face. Answer in short, "
      "plain "
      "sentences, say so when you do not know, and never make up names, numbers or "
      "dates.<|im_end|>\n<|im_start|>user\n";
  const char* const topics[] = {"rivers", "copper", "bees",   "tides", "bread", "chess", "rain",  "glass",
                                "horses", "salt",   "trains", "maps",  "ink",   "bells", "wells", "paper"};
  std::vector<GenerationRequest> requests;
  std::vector<Answer> expected;
  for (const char* topic : topics) {
    const std::string text = system + "Tell me something about " + topic + ".<|im_end|>\n<|im_start|>assistant\n";
    requests.push_back(greedy(real().file.encode(text), 16));
    expected.push_back(real().alone(requests.back()));
  }
  Stage stage(real().file, setup(300, {.max_num_seqs = 8}));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const Answer got = stage.run(requests[i]);
    EXPECT_TRUE(same_answer(got, expected[i])) << topics[i];
    EXPECT_EQ(got.end.usage.cached_tokens > 48, i > 0) << topics[i];
  }
  const std::vector<Answer> again = stage.run_together(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_answer(again[i], expected[i])) << topics[i];
    EXPECT_EQ(again[i].end.usage.cached_tokens, std::ssize(requests[i].prompt) - 1);
  }
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReuseSmol, ATalkOfSixTurnsIsAsWithoutACache) {
  const char* const turns[] = {"Name a colour.", "And a fruit of that colour.", "Where does it grow?",
                               "Is it sweet?",   "What do people make of it?",  "Thank you."};
  Stage stage(real().file, setup(100));
  std::vector<TokenId> talk;
  for (const char* turn : turns) {
    talk = joined(std::move(talk),
                  real().file.encode(std::string("<|im_start|>user\n") + turn + "<|im_end|>\n<|im_start|>assistant\n"));
    GenerationRequest request = greedy(talk, 24);
    request.stopping.ignore_eos = false;
    request.stopping.stop = {".", "\n"};
    const Answer got = stage.run(request);
    EXPECT_TRUE(same_answer(got, real().alone(request))) << turn;
    talk = joined(joined(std::move(talk), got.front().ids), real().file.encode("<|im_end|>\n"));
  }
  EXPECT_GT(stage.load().cached_tokens, 0);
}

// Eight at once with room for three.
TEST_P(ReuseSmol, PreemptedAnswersAreAsAlone) {
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < 8; ++i) {
    const std::vector<TokenId> prompt = excerpt("smollm2", 100 * i, 40);
    requests.push_back(i % 2 == 0 ? greedy(prompt, 56) : sampled(prompt, 56, i));
  }
  Stage stage(real().file, setup(18, {.max_batch_tokens = 48}));
  const std::vector<Answer> got = stage.run_together(requests);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(same_answer(got[i], real().alone(requests[i]))) << i;
  EXPECT_GT(stage.load().num_preemptions, 0);
  EXPECT_TRUE(stage.gives_all_back());
}

// Each prompt has a code word of its own behind a common preface; nobody says another's.
TEST_P(ReuseSmol, NobodySaysAnothersCodeWord) {
  const std::vector<TokenId> preface = excerpt("smollm2", 0, 64);
  std::vector<std::string> words;
  std::vector<GenerationRequest> requests;
  for (int i = 0; i < 32; ++i) {
    words.push_back(std::string{static_cast<char>('A' + i % 26), static_cast<char>('Z' - i % 23)} +
                    std::to_string(11 + 2 * i));
    const std::string text = "\nThe code is " + words.back() + ". Repeat the code: the code is";
    requests.push_back(greedy(joined(preface, real().file.encode(text)), 8));
  }
  std::vector<Answer> expected;
  for (const GenerationRequest& request : requests) expected.push_back(real().alone(request));
  Stage stage(real().file, setup(24, {.max_num_seqs = 16, .max_batch_tokens = 64}));
  for (unsigned round = 0; round < 3; ++round) {
    std::vector<std::size_t> order(requests.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), std::mt19937(round));
    std::vector<GenerationRequest> shuffled;
    for (std::size_t i : order) shuffled.push_back(requests[i]);
    const std::vector<Answer> got = stage.run_together(shuffled);
    for (std::size_t i = 0; i < order.size(); ++i) {
      EXPECT_TRUE(same_answer(got[i], expected[order[i]])) << words[order[i]];
      for (std::size_t other = 0; other < words.size(); ++other) {
        EXPECT_TRUE(other == order[i] || got[i].front().bytes.find(words[other]) == std::string::npos)
            << words[order[i]] << " was answered by " << got[i].front().bytes;
      }
    }
  }
  EXPECT_TRUE(stage.gives_all_back());
}

// What the model said of its answer while it made it, it says of it as a prompt: 64 rows at a time, over all of a large
// vocabulary, in company and in chunks.
TEST_P(ReuseGemma, AnAnswerIsScoredAsItWasMade) {
  const std::vector<TokenId> prompt = excerpt("gemma3", 100, 150);
  GenerationRequest request = sampled(prompt, 40, 3);
  request.sampling.num_logprobs = 5;
  const Answer made = real().alone(request);
  GenerationRequest again = greedy(joined(prompt, made.front().ids), 0);
  again.sampling.num_prompt_logprobs = 5;
  const Answer alone = real().alone(again);
  ASSERT_EQ(alone.prompt_logprobs.size(), 190U);
  for (std::size_t i = 0; i < 40; ++i) {
    const SampledToken& scored = alone.prompt_logprobs[150 + i];
    EXPECT_EQ(scored.id, made.front().ids[i]);
    EXPECT_EQ(scored.logprob, made.front().logprobs[i]) << i;
    for (std::size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(scored.top[k].id, made.front().top[5 * i + k].id);
      EXPECT_EQ(scored.top[k].logprob, made.front().top[5 * i + k].logprob);
    }
  }
  Stage stage(real().file, setup(60, {.max_batch_tokens = 96}));
  const std::vector<Answer> got = stage.run_together({request, again, again});
  EXPECT_TRUE(same_answer(got[0], made));
  EXPECT_TRUE(same_answer(got[1], alone));
  EXPECT_TRUE(same_answer(got[2], alone));
  EXPECT_TRUE(stage.gives_all_back());
}

// Longer than the windows of 512, and than a partition of attention; four times each.
TEST_P(ReuseGemma, LongPromptsFourTimesEach) {
  Stage stage(real().file, setup(160));
  for (const std::size_t length : {600U, 1500U}) {
    const GenerationRequest request = greedy(excerpt("gemma3", 0, length), 16);
    const Answer expected = real().alone(request);
    for (int time = 0; time < 4; ++time) {
      const Answer got = stage.run(request);
      EXPECT_TRUE(same_answer(got, expected)) << length << " time " << time;
      // The longer one begins with the shorter, and may go on as its answer did for a while.
      if (time == 0) {
        EXPECT_EQ(got.end.usage.cached_tokens / 600, length == 600 ? 0 : 1);
      } else {
        EXPECT_EQ(got.end.usage.cached_tokens, static_cast<std::int64_t>(length) - 1);
      }
    }
  }
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReuseGemma, SharedPrefixesBeyondTheWindowsAtOnce) {
  const std::vector<TokenId> prefix = excerpt("gemma3", 0, 650);
  std::vector<GenerationRequest> requests;
  for (std::size_t i = 0; i < 6; ++i) {
    const std::vector<TokenId> prompt = joined(prefix, excerpt("gemma3", 1000 + 50 * i, 10 + i));
    requests.push_back(i % 2 == 0 ? greedy(prompt, 12) : sampled(prompt, 12, i));
    requests.back().n = i == 3 ? 3 : 1;
  }
  Stage stage(real().file, setup(60, {.max_batch_tokens = 96}));
  const std::vector<Answer> got = stage.run_together(requests);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    EXPECT_TRUE(same_answer(got[i], real().alone(requests[i]))) << i;
    EXPECT_EQ(got[i].end.usage.cached_tokens >= 640, i > 0) << i;
  }
  EXPECT_TRUE(stage.gives_all_back());
}

}  // namespace
}  // namespace folio
