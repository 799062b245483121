// A model whose logits are not numbers: the request that they belong to ends with an error, and nobody else's does. And
// what the load says while a step is under way.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <future>
#include <limits>

#include "tests/engine/reader.h"

namespace folio {
namespace {

using testing::HasSubstr;

// The fake model's samples and scores that come to nothing, as rows of NaN do: of sequences that begin with kBroken, at
// their position 5 and behind it.
class Breaker {
 public:
  static constexpr TokenId kBroken = 7;

  void operator()(const StepBatch& batch, std::span<SampledToken> samples, std::span<SampledToken> scores) {
    std::vector<bool> broken;  // by row
    for (std::size_t s = 0; s + 1 < batch.query_start.size(); ++s) {
      const auto begin = static_cast<std::size_t>(batch.query_start[s]);
      const BlockId first = batch.block_ids[static_cast<std::size_t>(batch.block_start[s])];
      if (batch.positions[begin] == 0) begins_with_[first] = batch.tokens[begin];
      for (std::int32_t row = batch.query_start[s]; row < batch.query_start[s + 1]; ++row) {
        broken.push_back(begins_with_[first] == kBroken && batch.positions[static_cast<std::size_t>(row)] >= 5);
      }
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const auto logit_row = static_cast<std::size_t>(batch.samples[i].logit_row);
      if (!broken[static_cast<std::size_t>(batch.logit_rows[logit_row])]) continue;
      std::vector<float> logits(kVocab, std::numeric_limits<float>::quiet_NaN());
      samples[i] = sample_row(batch.samples[i], logits, scratch_);
    }
    for (std::size_t i = 0; i < scores.size(); ++i) {
      if (broken[static_cast<std::size_t>(batch.scores[i].row)]) scores[i] = {};
    }
  }

 private:
  std::map<BlockId, TokenId> begins_with_;
  SamplerScratch scratch_;
};

struct BreakableRig : Rig {
  BreakableRig() : Rig({.max_batch_tokens = 32}) { model.set_change(Breaker()); }
};

GenerationRequest greedy_of(int number, TokenId first, std::int64_t max_tokens, std::int32_t n = 1) {
  GenerationRequest request = request_of(number, 9, max_tokens, n);
  request.prompt[0] = first;
  request.sampling.temperature = 0;
  return request;
}

class EngineBrokenTest : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(EngineBrokenTest);

TEST_P(EngineBrokenTest, ARequestWithoutNumbersEndsAloneAndTheOthersGoOn) {
  for (const float temperature : {0.0F, 1.0F}) {
    for (const std::int32_t n : {1, 3}) {
      BreakableRig rig;
      std::deque<Reader> readers;
      std::vector<GenerationRequest> requests;
      for (int i = 0; i < 6; ++i) {
        const bool broken = i % 3 == 1;
        requests.push_back(greedy_of(i, broken ? Breaker::kBroken : i, 12, broken ? n : 1));
        requests.back().sampling.temperature = broken ? temperature : 0.0F;
        requests.back().sampling.num_logprobs = broken && i == 1 ? 3 : 0;
        Reader& reader = readers.emplace_back(requests.back().n);
        ASSERT_TRUE(rig.engine->submit(requests.back(), reader.stream()).ok());
      }
      for (std::size_t i = 0; i < 6; ++i) {
        readers[i].wait_end();
        if (i % 3 == 1) {
          EXPECT_EQ(readers[i].error(), ErrorCode::kInternal);
          EXPECT_THAT(readers[i].end().error->message, HasSubstr("not numbers"));
          EXPECT_EQ(readers[i].end().usage.output_tokens, 0) << "no token 0";
          for (std::int32_t index = 0; index < n; ++index) {
            EXPECT_EQ(readers[i].output(index).finish, FinishReason::kError);
            EXPECT_TRUE(readers[i].output(index).ids.empty());
          }
        } else {
          EXPECT_FALSE(readers[i].end().error);
          EXPECT_EQ(readers[i].output().ids, fake_outputs(requests[i].prompt, 12, kVocab));
        }
      }
      EXPECT_TRUE(rig.idle());
    }
  }
}

// Nobody is to build on what it computed.
TEST_P(EngineBrokenTest, WhatItComputedIsForgotten) {
  BreakableRig rig;
  Reader broken;
  ASSERT_TRUE(rig.engine->submit(greedy_of(1, Breaker::kBroken, 5), broken.stream()).ok());
  broken.wait_end();
  EXPECT_TRUE(rig.idle());
  EXPECT_EQ(rig.engine->load().blocks_cached, 0);
}

TEST_P(EngineBrokenTest, APromptThatCannotBeScoredIsAnErrorToo) {
  BreakableRig rig;
  Reader broken;
  Reader other;
  GenerationRequest request = greedy_of(1, Breaker::kBroken, 0);
  request.sampling.num_prompt_logprobs = 0;
  GenerationRequest fine = greedy_of(2, 1, 5);
  fine.sampling.num_prompt_logprobs = 0;
  ASSERT_TRUE(rig.engine->submit(request, broken.stream()).ok());
  ASSERT_TRUE(rig.engine->submit(fine, other.stream()).ok());
  broken.wait_end();
  other.wait_end();
  EXPECT_EQ(broken.error(), ErrorCode::kInternal);
  EXPECT_LE(broken.prompt_logprobs().size(), 1U) << "of a step that is broken nothing is told";
  EXPECT_FALSE(other.end().error);
  EXPECT_EQ(other.prompt_logprobs().size(), 9U);
  EXPECT_TRUE(rig.idle());
}

// ---- the load during a step

class EngineLoadTest : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(EngineLoadTest);

TEST_P(EngineLoadTest, RequestsAreCountedWhileAStepRuns) {
  Rig rig({.max_num_seqs = 1});
  std::promise<void> inside[2];
  Gate gates[2];
  std::atomic<int> num_steps = 0;
  rig.model.set_hook([&](const StepBatch&) {
    const int step = num_steps++;
    if (step > 1) return;
    inside[step].set_value();
    gates[step].wait();
  });
  std::deque<Reader> readers;
  rig.submit(request_of(0, 5, 4), readers.emplace_back());
  inside[0].get_future().wait();
  EXPECT_EQ(rig.engine->load().num_running, 1) << "it is in the step";
  EXPECT_EQ(rig.engine->load().num_waiting, 0);
  for (int i = 1; i < 4; ++i) rig.submit(request_of(i, 5, 4), readers.emplace_back());
  EXPECT_EQ(rig.engine->load().num_waiting, 3) << "in the inbox";
  gates[0].open();
  inside[1].get_future().wait();
  EXPECT_EQ(rig.engine->load().num_running, 1);
  EXPECT_EQ(rig.engine->load().num_waiting, 3) << "taken out of the inbox for this step, and not started";
  gates[1].open();
  for (Reader& reader : readers) reader.wait_end();
  EXPECT_TRUE(rig.idle());
}

}  // namespace
}  // namespace folio
