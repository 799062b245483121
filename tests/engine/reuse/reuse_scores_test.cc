// Log probabilities of prompts with real models: to the bit those of each request alone, those that the model said of
// the same tokens while it made them, and within rounding those of an independent computation.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/model/load_model.h"
#include "tests/engine/model/teacher_force.h"
#include "tests/engine/reuse/cases.h"

namespace folio {
namespace {

class ReuseScores : public ReuseCase {};
FOLIO_FOR_TINY_MODELS(ReuseScores);

GenerationRequest scored(GenerationRequest request, std::int32_t num_logprobs = 3) {
  request.sampling.num_prompt_logprobs = num_logprobs;
  return request;
}

TEST_P(ReuseScores, EqualAnIndependentTeacherForcedComputation) {
  const std::vector<TokenId> prompt = random_tokens(1, 200);
  const Answer answer = alone(scored(greedy(prompt, 1)));
  ASSERT_EQ(answer.prompt_logprobs.size(), prompt.size());
  const LoadedModel loaded = load_model(GgufFile(GetParam()), {.num_threads = 1, .kv_blocks = 32});
  teacher_force(*loaded.model, prompt, 37, 0, [&](int row, std::span<const float> logits) {
    const auto next = static_cast<std::size_t>(row) + 1;
    if (next == prompt.size()) return;
    const SampledToken& token = answer.prompt_logprobs[next];
    EXPECT_EQ(token.id, prompt[next]);
    EXPECT_NEAR(token.logprob, log_probability(logits, prompt[next]), 2e-6 * (1 + std::fabs(token.logprob)));
    ASSERT_EQ(token.top.size(), 3U);
    EXPECT_EQ(token.top[0].id, argmax(logits));
    for (const TokenLogprob& top : token.top) {
      EXPECT_NEAR(top.logprob, log_probability(logits, top.id), 2e-6 * (1 + std::fabs(top.logprob)));
    }
  });
}

// A prompt that goes on with an answer is scored as that answer was made.
TEST_P(ReuseScores, AnAnswerIsScoredAsItWasMade) {
  for (const bool is_greedy : {true, false}) {
    const std::vector<TokenId> prompt = random_tokens(2, 45);
    const GenerationRequest request = is_greedy ? greedy(prompt, 60) : sampled(prompt, 60, 9);
    const Answer made = alone(request);
    const Answer again = alone(scored(greedy(joined(prompt, made.front().ids), 0)));
    ASSERT_EQ(again.prompt_logprobs.size(), 105U);
    for (std::size_t i = 0; i < 60; ++i) {
      EXPECT_EQ(again.prompt_logprobs[45 + i].id, made.front().ids[i]);
      EXPECT_EQ(again.prompt_logprobs[45 + i].logprob, made.front().logprobs[i]) << i;
    }
  }
}

// Chunks, company, little room, a cache full of the same prompts, one and several answers.
TEST_P(ReuseScores, AreAsAloneWhateverIsThereBesides) {
  std::vector<GenerationRequest> requests;
  const std::vector<TokenId> prefix = random_tokens(3, 70);
  for (int i = 0; i < 8; ++i) {
    const std::vector<TokenId> prompt =
        joined(prefix, random_tokens(static_cast<std::uint64_t>(30 + i), 1 + 9 * static_cast<std::size_t>(i)));
    GenerationRequest request = i % 2 == 0 ? greedy(prompt, 12) : sampled(prompt, 12, static_cast<std::uint64_t>(i));
    if (i == 3) request.n = 3;
    if (i == 5) request.stopping.max_tokens = 0;
    requests.push_back(i % 4 == 2 ? request : scored(request, i % 3));
  }
  const std::vector<Answer> expected = alone(requests);
  std::int64_t num_preemptions = 0;
  for (const std::int32_t chunk : {1, 7, 64, 0}) {
    for (const std::int32_t num_blocks : {14, 100}) {
      SCOPED_TRACE("chunk " + std::to_string(chunk) + ", " + std::to_string(num_blocks) + " blocks");
      Stage stage(file(), {.num_blocks = num_blocks,
                           .threads = chunk == 7 ? 2 : 1,
                           .options = {.max_batch_tokens = 40, .max_prefill_chunk = chunk}});
      for (int round = 0; round < 2; ++round) {
        const std::vector<Answer> got = stage.run_together(requests);
        for (std::size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(same_answer(got[i], expected[i])) << i << " round " << round;
          const bool scores = requests[i].sampling.num_prompt_logprobs >= 0;
          EXPECT_TRUE(!scores || got[i].end.usage.cached_tokens == 0);
          num_preemptions += scores ? got[i].end.timings.num_preemptions : 0;
        }
      }
      EXPECT_GT(stage.load().cached_tokens, 0) << "the others find what these computed";
      EXPECT_TRUE(stage.gives_all_back());
    }
  }
  EXPECT_GT(num_preemptions, 0);
}

}  // namespace
}  // namespace folio
