// Company: what a request is told does not depend on who else is there, on the size of the steps, or on how long the
// prompts of others are; and a long prompt stops nobody.
#include <map>
#include <set>

#include "tests/engine/reuse/cases.h"

namespace folio {
namespace {

class ReuseCompany : public ReuseCase {};
FOLIO_FOR_TINY_MODELS(ReuseCompany);

GenerationRequest seeded(std::uint64_t seed) {
  GenerationRequest request = greedy(random_tokens(50, 21), 16);
  request.sampling.temperature = 0.8F;
  request.sampling.seed = seed;
  return request;
}

TEST_P(ReuseCompany, ASeedGivesTheSameInAnyRowBesideAnyone) {
  const GenerationRequest a = seeded(42);
  const Answer expected = alone(a);
  Stage stage(file(), {.num_blocks = 200});
  const auto other = [](std::uint64_t i) { return sampled(random_tokens(60 + i, 10 + i), 20, i); };
  for (int time = 0; time < 4; ++time) {
    for (const std::size_t row : {0U, 1U, 7U}) {
      std::vector<GenerationRequest> requests;
      for (std::size_t i = 0; i < 8; ++i) requests.push_back(i == row ? a : other(i));
      EXPECT_TRUE(same_answer(stage.run_together(requests)[row], expected)) << "row " << row;
    }
    EXPECT_TRUE(same_answer(stage.run(a), expected)) << "from the cache";
    const std::vector<Answer> twice = stage.run_together({a, a});
    EXPECT_TRUE(same_answer(twice[0], expected) && same_answer(twice[1], expected));
    stage.engine().flush_prefix_cache();
  }
  std::vector<GenerationRequest> seeds;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) seeds.push_back(seeded(seed));
  std::set<std::vector<TokenId>> different;
  for (const Answer& answer : stage.run_together(seeds)) different.insert(answer.front().ids);
  EXPECT_GT(different.size(), 4U);
}

// ---- long prompts

TEST_P(ReuseCompany, ChunksAndBudgetsOfAnySizeGiveTheSame) {
  std::map<std::size_t, Answer> expected;
  for (const std::int32_t chunk : {1, 16, 17, 64, 0}) {
    for (const std::int32_t budget : {3, 16, 17, 64, 512}) {
      if (chunk == 1 && budget > 16) continue;
      // Fewer tokens in a step than sequences, and chunks above the budget, are taken as they are meant.
      Stage stage(file(), {.num_blocks = 100,
                           .options = {.max_num_seqs = 8, .max_batch_tokens = budget, .max_prefill_chunk = chunk}});
      const std::size_t unit = chunk > 1 ? static_cast<std::size_t>(chunk) : 16;
      std::vector<GenerationRequest> requests;
      for (const std::size_t length : {unit - 1, unit, unit + 1, 3 * unit - 1, 3 * unit, 3 * unit + 1}) {
        requests.push_back(greedy(random_tokens(70, length), 8));
        if (!expected.contains(length)) expected[length] = alone(requests.back());
      }
      const std::vector<Answer> got = stage.run_together(requests);
      for (std::size_t i = 0; i < got.size(); ++i) {
        const std::size_t length = requests[i].prompt.size();
        EXPECT_TRUE(same_answer(got[i], expected.at(length))) << length << " chunk " << chunk << " budget " << budget;
      }
    }
  }
}

// A runs; then B comes with a long prompt, and C behind it with a short one.
TEST_P(ReuseCompany, ALongPromptStopsNeitherTheRunningNorTheShort) {
  constexpr std::int32_t kBudget = 32;
  const GenerationRequest a = greedy(random_tokens(80, 10), 100);
  const GenerationRequest b = greedy(random_tokens(81, 450), 20);
  const GenerationRequest c = greedy(random_tokens(82, 20), 20);
  Stage stage(file(), {.num_blocks = 60, .options = {.max_batch_tokens = kBudget}});
  Reader readers[3];
  struct Step {
    std::int32_t context_of_a = 0, context_of_b = 0, context_of_c = 0, num_tokens = 0;
  };
  std::vector<Step> steps;
  stage.set_hook([&](const StepBatch& batch) {
    if (steps.size() == 5) {
      stage.submit(b, readers[1]);
      stage.submit(c, readers[2]);
    }
    Step& step = steps.emplace_back();
    step.num_tokens = batch.num_tokens();
    for (std::size_t s = 0; s < batch.context_len.size(); ++s) {  // told apart by their last tokens
      const auto last = static_cast<std::size_t>(batch.query_start[s + 1]) - 1;
      const TokenId token = batch.tokens[last];
      const auto position = static_cast<std::size_t>(batch.positions[last]);
      if (position < b.prompt.size() && b.prompt[position] == token) step.context_of_b = batch.context_len[s];
      if (position < c.prompt.size() && c.prompt[position] == token) step.context_of_c = batch.context_len[s];
      if (batch.context_len[s] == 10 + static_cast<std::int32_t>(steps.size()) - 1)
        step.context_of_a = batch.context_len[s];
    }
  });
  stage.submit(a, readers[0]);
  for (Reader& reader : readers) reader.wait_end();
  std::size_t c_done = 0, b_done = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_LE(steps[i].num_tokens, kBudget);
    EXPECT_TRUE(i >= 100 || steps[i].context_of_a > 0) << "A was left out of step " << i;
    if (steps[i].context_of_c == 20) c_done = i;
    if (steps[i].context_of_b == 450) b_done = i;
  }
  EXPECT_GT(c_done, 0U);
  EXPECT_LE(c_done, 8U) << "C gets a share of the step that B begins in";
  EXPECT_GE(b_done, 19U);
  const GenerationRequest* requests[] = {&a, &b, &c};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(same_output(readers[i].output(), alone(*requests[i]).front())) << i;
  }
  EXPECT_TRUE(stage.gives_all_back());
}

}  // namespace
}  // namespace folio
