// Several answers to one prompt: n sequences that share its blocks and part from there.
#include <algorithm>
#include <set>

#include "engine/model/decoder.h"
#include "tests/engine/reuse/cases.h"

namespace folio {
namespace {

class ReuseForks : public ReuseCase {};
FOLIO_FOR_TINY_MODELS(ReuseForks);

GenerationRequest several(std::size_t num_prompt_tokens, std::int64_t max_tokens, std::int32_t n) {
  GenerationRequest request = greedy(random_tokens(num_prompt_tokens, num_prompt_tokens), max_tokens);
  request.sampling.temperature = 1;
  request.sampling.seed = 7;
  request.n = n;
  return request;
}

// The answer of one index without engine, scheduler and blocks: a forward pass, a sample, and again.
Reader::Output by_hand(const ModelFile& file, const GenerationRequest& request, std::int32_t index) {
  const LoadedModel loaded = load_model(file.file, {.num_threads = 1, .kv_blocks = 32});
  Model& model = *loaded.model;
  Reader::Output output;
  std::vector<TokenId> tokens = request.prompt;
  std::size_t num_computed = 0;
  while (std::ssize(output.ids) < request.stopping.max_tokens) {
    StepBatch batch;
    batch.clear();
    for (; num_computed < tokens.size(); ++num_computed) {
      batch.tokens.push_back(tokens[num_computed]);
      batch.positions.push_back(static_cast<std::int32_t>(num_computed));
      batch.slots.push_back(static_cast<std::int32_t>(num_computed) + model.block_size());  // blocks 1, 2, 3 ...
    }
    batch.query_start.push_back(batch.num_tokens());
    batch.context_len.push_back(static_cast<std::int32_t>(tokens.size()));
    while (std::ssize(batch.block_ids) * model.block_size() < std::ssize(tokens)) {
      batch.block_ids.push_back(static_cast<BlockId>(batch.block_ids.size() + 1));
    }
    batch.block_start.push_back(static_cast<std::int32_t>(batch.block_ids.size()));
    batch.logit_rows.push_back(batch.num_tokens() - 1);
    batch.samples.push_back({.logit_row = 0,
                             .params = &request.sampling,
                             .sequence_index = index,
                             .position = std::ssize(tokens),
                             .tokens = tokens,
                             .num_prompt_tokens = std::ssize(request.prompt),
                             .masked = {}});
    SampledToken token;
    model.start(batch);
    model.collect({&token, 1}, {});
    output.ids.push_back(token.id);
    output.logprobs.push_back(token.logprob);
    output.top.insert(output.top.end(), token.top.begin(), token.top.end());
    tokens.push_back(token.id);
  }
  return output;
}

// Prompts that end before, at and after a block's end. Penalties too: what one index is told must not depend on what
// was done to the row of logits that all of them begin with.
TEST_P(ReuseForks, EachIndexGivesWhatItGivesByHand) {
  Stage stage(file(), {.options = {.max_batch_tokens = 64}});
  for (const std::size_t length : {1U, 15U, 16U, 17U, 31U, 33U}) {
    for (const bool penalties : {false, true}) {
      GenerationRequest request = several(length, 24, 4);
      if (penalties) request = sampled(request.prompt, 24, 7);
      if (penalties) request.sampling.logit_bias = {{5, 2.0F}, {17, -3.0F}};
      request.n = 4;
      const Answer got = stage.run(request);
      for (std::int32_t index = 0; index < 4; ++index) {
        const Reader::Output& output = got.outputs[static_cast<std::size_t>(index)];
        EXPECT_EQ(output.finish, FinishReason::kLength);
        EXPECT_TRUE(is_beginning(output, by_hand(file(), request, index))) << length << " index " << index;
      }
    }
  }
}

TEST_P(ReuseForks, FourDifferentAnswersTheSameOnRepeatAndInCompany) {
  for (const std::size_t length : {15U, 16U, 17U, 31U, 33U}) {
    const GenerationRequest request = several(length, 24, 4);
    const Answer expected = alone(request);
    std::set<std::vector<TokenId>> different;
    for (const Reader::Output& output : expected.outputs) different.insert(output.ids);
    EXPECT_EQ(different.size(), 4U) << length;
    // The second time from the cache; then among others and without room for all, so that indices are preempted.
    Stage stage(file(), {.num_blocks = 9, .options = {.max_batch_tokens = 20, .block_shuffle_seed = length}});
    for (int time = 0; time < 2; ++time) {
      const Answer got = stage.run(request);
      EXPECT_TRUE(same_answer(got, expected)) << length;
      EXPECT_EQ(got.end.usage.prompt_tokens, static_cast<std::int64_t>(length));
      EXPECT_EQ(got.end.usage.output_tokens, 4 * 24);
      EXPECT_EQ(got.end.usage.cached_tokens, time == 0 ? 0 : static_cast<std::int64_t>(length) - 1);
    }
    const std::vector<GenerationRequest> company = {sampled(random_tokens(3, 40), 30, 1), request,
                                                    sampled(request.prompt, 30, 2), several(length, 24, 2)};
    const std::vector<Answer> got = stage.run_together(company);
    for (std::size_t i = 0; i < company.size(); ++i) EXPECT_TRUE(same_answer(got[i], alone(company[i]))) << i;
    EXPECT_GT(stage.load().num_preemptions, 0);
    EXPECT_TRUE(stage.gives_all_back());
  }
}

TEST_P(ReuseForks, GreedyOnesAreAllEqualToTheOneAlone) {
  Stage stage(file(), {});
  for (const std::size_t length : {15U, 16U, 17U, 33U}) {
    GenerationRequest request = greedy(random_tokens(length, length), 24);
    const Answer one = alone(request);
    request.n = 4;
    const Answer got = stage.run(request);
    for (const Reader::Output& output : got.outputs) EXPECT_TRUE(same_output(output, one.front())) << length;
    EXPECT_EQ(got.end.usage.output_tokens, 4 * 24);
  }
}

// The full blocks of the prompt are there once; what each adds, and its own copy of the block in which they part, is
// all that n outputs cost.
TEST_P(ReuseForks, MemoryGrowsOnlyWithWhatDiffers) {
  for (const std::int32_t block_size : {16, 32}) {
    for (const std::int32_t length : {15, 16, 17, 31, 32, 33, 64, 100}) {
      for (const std::int32_t max_tokens : {1, 2, 17, 40}) {
        Stage stage(file(), {.block_size = block_size, .num_blocks = 200});
        GenerationRequest request = several(static_cast<std::size_t>(length), max_tokens, 4);
        request.cache.bypass = max_tokens == 17;
        const Answer got = stage.run(request);
        const auto blocks_for = [&](std::int32_t tokens) { return (tokens + block_size - 1) / block_size; };
        const std::int32_t shared = max_tokens == 1 ? blocks_for(length) : length / block_size;
        const std::int32_t own = blocks_for(length + max_tokens - 1) - shared;
        EXPECT_EQ(got.end.timings.peak_blocks, shared + 4 * own) << length << " + " << max_tokens;
        // Three copies are what it takes: the fourth may go on in the block itself.
        const int num_copies = max_tokens > 1 && length % block_size != 0 ? 3 : 0;
        EXPECT_EQ(stage.model().num_copies(), num_copies) << length << " + " << max_tokens;
      }
    }
  }
}

TEST_P(ReuseForks, AbortsInTheMiddle) {
  const GenerationRequest request = several(33, 40, 4);
  const Answer expected = alone(request);
  Stage stage(file(), {});
  RequestId id = 0;
  std::int32_t index = 0;
  stage.set_hook([&](const StepBatch& batch) {
    if (batch.context_len[0] == 45 && index < 4) stage.engine().cancel(id, index);
    if (batch.context_len[0] == 45 && index == 4) stage.engine().cancel(id);
  });
  for (index = 0; index <= 4; ++index) {
    Reader reader(4);
    {
      const auto no_step = stage.hold();
      id = stage.submit(request, reader);
    }
    reader.wait_end();
    std::int64_t num_tokens = 0;
    for (std::int32_t i = 0; i < 4; ++i) {
      const Reader::Output& whole = expected.outputs[static_cast<std::size_t>(i)];
      const bool is_cut = index == i || index == 4;
      EXPECT_EQ(reader.output(i).finish, is_cut ? FinishReason::kCancelled : FinishReason::kLength);
      EXPECT_TRUE(is_cut ? is_beginning(reader.output(i), whole) : same_output(reader.output(i), whole));
      EXPECT_TRUE(!is_cut || reader.output(i).ids.size() == 13);
      num_tokens += std::ssize(reader.output(i).ids);
    }
    EXPECT_EQ(reader.error(), index == 4 ? ErrorCode::kCancelled : ErrorCode::kNotFound);
    EXPECT_EQ(reader.end().usage.output_tokens, num_tokens);
    ASSERT_TRUE(stage.is_settled());
    EXPECT_EQ(stage.load().blocks_held, 0);
  }
  EXPECT_TRUE(stage.gives_all_back());
}

}  // namespace
}  // namespace folio
