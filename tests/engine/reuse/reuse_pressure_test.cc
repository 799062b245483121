// Too little room: preemption, lone sequences that outgrow the pool, and what comes and goes by the hundred. Nothing of
// it shows in an answer, and afterwards every block is back.
#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "tests/engine/reuse/cases.h"

namespace folio {
namespace {

class ReusePressure : public ReuseCase {};
FOLIO_FOR_TINY_MODELS(ReusePressure);

constexpr int kNumRequests = 8;

std::vector<TokenId> prompt_of(int i) {
  return random_tokens(static_cast<std::uint64_t>(500 + i), static_cast<std::size_t>(38 + i % 4));
}

TEST_P(ReusePressure, PreemptedAnswersAreAsAlone) {
  std::vector<std::vector<GenerationRequest>> kinds(4);
  for (int i = 0; i < kNumRequests; ++i) {
    kinds[0].push_back(greedy(prompt_of(i), 200));
    kinds[1].push_back(sampled(prompt_of(i), 200, static_cast<std::uint64_t>(i)));
    kinds[2].push_back(greedy(prompt_of(i), 200));
    const std::vector<TokenId> ids = alone(kinds[2].back()).front().ids;
    kinds[2].back().stopping.min_tokens = 125;  // a tiny model repeats itself
    kinds[2].back().stopping.stop = {file().text_of(std::span(ids).subspan(130 + 5 * static_cast<std::size_t>(i), 4))};
    kinds[3].push_back(sampled(prompt_of(i), 100, static_cast<std::uint64_t>(i)));
    kinds[3].back().n = 2;
  }
  for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
    const std::vector<Answer> expected = alone(kinds[kind]);
    for (const bool prefix_cache : {true, false}) {
      SCOPED_TRACE("kind " + std::to_string(kind) + (prefix_cache ? " with" : " without") + " the prefix cache");
      Stage stage(file(), {.num_blocks = 46, .options = {.max_batch_tokens = 32, .prefix_cache = prefix_cache}});
      const std::vector<Answer> got = stage.run_together(kinds[kind]);
      std::int64_t num_preemptions = 0;
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(same_answer(got[i], expected[i])) << i;
        num_preemptions += got[i].end.timings.num_preemptions;
      }
      EXPECT_GT(num_preemptions, 0);
      EXPECT_EQ(num_preemptions, stage.load().num_preemptions);
      EXPECT_TRUE(stage.gives_all_back());
    }
  }
}

// ---- a pool of 20 blocks of 16: 320 tokens

Stage::Setup small_pool() {
  return {.num_blocks = 20, .options = {.max_num_seqs = 8, .max_batch_tokens = 64}};
}

TEST_P(ReusePressure, WhatCanNeverFitIsRefusedAndHoldsNobodyUp) {
  Stage stage(file(), small_pool());
  const auto refused = stage.engine().submit(greedy(random_tokens(1, 400), 5), Reader().stream());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.error().message.find("400 tokens"), std::string::npos);
  EXPECT_NE(refused.error().message.find("20 blocks of 16"), std::string::npos);
  const std::vector<GenerationRequest> shorter = {
      greedy(random_tokens(2, 20), 20), sampled(random_tokens(3, 30), 20, 1), greedy(random_tokens(4, 3), 20)};
  const std::vector<Answer> got = stage.run_together(shorter);
  for (std::size_t i = 0; i < shorter.size(); ++i) EXPECT_TRUE(same_answer(got[i], alone(shorter[i])));
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReusePressure, ALoneSequenceThatOutgrowsThePoolEndsWithLength) {
  const GenerationRequest request = greedy(random_tokens(5, 200), 500);
  const Answer expected = alone(request);
  Stage stage(file(), small_pool());
  for (int time = 0; time < 2; ++time) {
    const Answer got = stage.run(request);
    EXPECT_FALSE(got.end.error);
    EXPECT_EQ(got.front().finish, FinishReason::kLength);
    EXPECT_EQ(got.front().ids.size(), 121U) << "the K/V of 320 tokens, and one more token";
    EXPECT_TRUE(is_beginning(got.front(), expected.front()));
  }
  // Behind it others are served, before and after.
  const std::vector<GenerationRequest> more = {request, greedy(random_tokens(6, 30), 60), request};
  const std::vector<Answer> got = stage.run_together(more);
  EXPECT_TRUE(is_beginning(got[0].front(), expected.front()));
  EXPECT_TRUE(same_answer(got[1], alone(more[1])));
  EXPECT_TRUE(is_beginning(got[2].front(), expected.front()));
  EXPECT_EQ(got[2].front().finish, FinishReason::kLength);
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReusePressure, TwoThatDoNotFitTogetherBothEnd) {
  const std::vector<GenerationRequest> two = {greedy(random_tokens(7, 100), 200),
                                              sampled(random_tokens(8, 100), 200, 3)};
  Stage stage(file(), small_pool());
  const std::vector<Answer> got = stage.run_together(two);
  for (std::size_t i = 0; i < two.size(); ++i) EXPECT_TRUE(same_answer(got[i], alone(two[i]))) << i;
  EXPECT_GE(stage.load().num_preemptions, 1);
  EXPECT_LE(stage.load().num_preemptions, 3) << "they take from each other in turn";
  EXPECT_EQ(got[0].end.timings.num_preemptions, 0) << "the first is never a victim";
  EXPECT_TRUE(stage.gives_all_back());
}

TEST_P(ReusePressure, EightAnswersToOnePrompt) {
  GenerationRequest request = sampled(random_tokens(9, 100), 100, 4);
  request.n = 8;
  Stage stage(file(), small_pool());
  EXPECT_TRUE(same_answer(stage.run(request), alone(request)));
  EXPECT_GT(stage.load().num_preemptions, 0);
  EXPECT_TRUE(stage.gives_all_back());
}

// ---- hundreds that come and go

// Closed while queued, in the prompt, after 1 or 5 tokens, or in the step of the natural end.
void close_streams(Stage& stage, int count) {
  std::mt19937 random(17);
  std::map<RequestId, std::int32_t> close_at;  // by id, the context length: 0 is at once
  stage.set_hook([&](const StepBatch& batch) {
    const auto no_submission = stage.hold();
    for (auto it = close_at.begin(); it != close_at.end();) {
      const bool due = std::ranges::find(batch.context_len, it->second) != batch.context_len.end();
      if (due) stage.engine().cancel(it->first);
      it = due ? close_at.erase(it) : std::next(it);
    }
  });
  std::deque<Reader> readers;
  for (int i = 0; i < count; ++i) {
    const auto length = static_cast<std::int32_t>(i % 10 == 0 ? 300 : 1 + random() % 60);
    GenerationRequest request = greedy(
        random_tokens(static_cast<std::uint64_t>(i % 40), static_cast<std::size_t>(length)), i % 3 == 0 ? 6 : 30);
    request.cache.bypass = i % 7 == 0;
    const std::int32_t after = std::initializer_list<std::int32_t>{-length, -length / 2, 0, 1, 5}.begin()[i % 5];
    const auto no_step = stage.hold();
    const RequestId id = stage.submit(std::move(request), readers.emplace_back());
    if (after == -length) {
      stage.engine().cancel(id);
    } else {
      close_at[id] = length + after;
    }
  }
  for (Reader& reader : readers) {
    reader.wait_end();
    EXPECT_TRUE(reader.error() == ErrorCode::kCancelled || reader.output().finish == FinishReason::kLength);
  }
  EXPECT_TRUE(stage.is_settled());
  stage.set_hook(nullptr);
}

void refuse(Stage& stage, int count) {
  for (int i = 0; i < count; ++i) {
    GenerationRequest request = greedy(random_tokens(1, 10 + 390 * (i % 2)), 5);
    if (i % 2 == 0) request.n = 100;
    EXPECT_FALSE(stage.engine().submit(std::move(request), Reader().stream()).ok());
  }
}

void abort_one_of_four(Stage& stage, int count) {
  std::deque<Reader> readers;
  for (int i = 0; i < count; ++i) {
    GenerationRequest request = sampled(random_tokens(static_cast<std::uint64_t>(i % 6), 33), 12, 5);
    request.n = 4;
    const RequestId id = stage.submit(std::move(request), readers.emplace_back(4));
    if (i % 3 == 0) readers.back().wait_tokens(static_cast<std::size_t>(i % 7));
    stage.engine().cancel(id, i % 4);
  }
  for (Reader& reader : readers) reader.wait_end();
  EXPECT_TRUE(stage.is_settled());
}

TEST_P(ReusePressure, HundredsOfClosedStreamsLeaveNothing) {
  for (const bool prefix_cache : {true, false}) {
    Stage stage(file(), {.num_blocks = 24,
                         .options = {.max_num_seqs = 6, .max_batch_tokens = 40, .prefix_cache = prefix_cache}});
    close_streams(stage, 300);
    refuse(stage, 100);
    abort_one_of_four(stage, 50);
    EXPECT_EQ(stage.load().blocks_held, 0);
    const GenerationRequest whole_pool = greedy(random_tokens(99, 24 * 16 - 1), 2);
    EXPECT_TRUE(same_answer(stage.run(whole_pool), alone(whole_pool)));
    EXPECT_TRUE(stage.gives_all_back());
  }
}

}  // namespace
}  // namespace folio
