// The worked example of engine/kernels/step_batch.h, and what it leaves open.
#include "engine/batch_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "block_manager/block_manager.h"

namespace folio {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct TwoSequences {
  TwoSequences() {
    a.request.id = 1;
    a.request.prompt = {10, 11, 12, 13};
    b.request.id = 2;
    b.request.prompt = {20, 21, 22, 23, 24};
    a.sequences.emplace_back(a, 0, blocks.make_table({}));
    b.sequences.emplace_back(b, 3, blocks.make_table({}));
    Sequence& first = a.sequences[0];
    first.tokens = {10, 11, 12, 13, 14, 15};
    b.sequences[0].tokens = b.request.prompt;
    EXPECT_TRUE(blocks.make_room(first.blocks, 6));
    EXPECT_TRUE(blocks.make_room(b.sequences[0].blocks, 5));  // its second block is not reached yet
  }
  BlockManager blocks{8, 4};
  RequestState a;
  RequestState b;
};

TEST(BatchBuilder, BuildsTheWorkedExample) {
  TwoSequences two;
  StepPlan plan;
  plan.slices = {{&two.a.sequences[0], 5, 1, 1}, {&two.b.sequences[0], 0, 3, 0}};
  plan.samples = {{&two.a.sequences[0], 0}};
  StepBatch batch;
  build_batch(plan, 4, batch);
  EXPECT_THAT(batch.tokens, ElementsAre(15, 20, 21, 22));
  EXPECT_THAT(batch.positions, ElementsAre(5, 0, 1, 2));
  EXPECT_THAT(batch.slots, ElementsAre(2 * 4 + 1, 12, 13, 14));
  EXPECT_THAT(batch.query_start, ElementsAre(0, 1, 4));
  EXPECT_THAT(batch.context_len, ElementsAre(6, 3));
  EXPECT_THAT(batch.block_start, ElementsAre(0, 2, 3));
  EXPECT_THAT(batch.block_ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(batch.logit_rows, ElementsAre(0));
  ASSERT_EQ(batch.samples.size(), 1U);
  EXPECT_EQ(batch.samples[0].logit_row, 0);
  EXPECT_EQ(batch.samples[0].params, &two.a.request.sampling);
  EXPECT_EQ(batch.samples[0].sequence_index, 0);
  EXPECT_EQ(batch.samples[0].position, 6);
  EXPECT_THAT(batch.samples[0].tokens, ElementsAre(10, 11, 12, 13, 14, 15));
  EXPECT_EQ(batch.samples[0].num_prompt_tokens, 4);
  EXPECT_THAT(batch.samples[0].masked, IsEmpty());
}

TEST(BatchBuilder, AChunkThatReachesTheEndIsSampledFromItsLastRowAndBuffersAreReused) {
  TwoSequences two;
  StepPlan plan;
  plan.slices = {{&two.a.sequences[0], 5, 1, 1}, {&two.b.sequences[0], 0, 3, 0}};
  plan.samples = {{&two.a.sequences[0], 0}};
  StepBatch batch;
  build_batch(plan, 4, batch);
  plan.slices = {{&two.a.sequences[0], 4, 2, 1}, {&two.b.sequences[0], 3, 2, 1}};
  plan.samples = {{&two.a.sequences[0], 0}, {&two.b.sequences[0], 1}};
  build_batch(plan, 4, batch);
  EXPECT_THAT(batch.tokens, ElementsAre(14, 15, 23, 24));
  EXPECT_THAT(batch.slots, ElementsAre(8, 9, 15, 16));
  EXPECT_THAT(batch.context_len, ElementsAre(6, 5));
  EXPECT_THAT(batch.block_ids, ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(batch.logit_rows, ElementsAre(1, 3));
  ASSERT_EQ(batch.samples.size(), 2U);
  EXPECT_EQ(batch.samples[1].logit_row, 1);
  EXPECT_EQ(batch.samples[1].sequence_index, 3);
  EXPECT_EQ(batch.samples[1].position, 5);
}

TEST(BatchBuilder, SiblingsAreSampledFromTheRowOfTheOneThatTheyAreForkedFromAndCopiesComeAlong) {
  TwoSequences two;
  two.b.sequences.reserve(2);
  Sequence sibling(two.b, 7, two.blocks.fork(two.b.sequences[0].blocks, 5));
  sibling.tokens = two.b.request.prompt;
  StepPlan plan;
  plan.slices = {{&two.a.sequences[0], 4, 1, 0}, {&two.b.sequences[0], 3, 2, 1}};
  plan.samples = {{&two.b.sequences[0], 1}, {&sibling, 1}};
  plan.copies = {{1, 5}, {5, 6}};
  StepBatch batch;
  build_batch(plan, 4, batch);
  EXPECT_THAT(batch.logit_rows, ElementsAre(2));
  ASSERT_EQ(batch.samples.size(), 2U);
  EXPECT_EQ(batch.samples[0].logit_row, 0);
  EXPECT_EQ(batch.samples[1].logit_row, 0);
  EXPECT_EQ(batch.samples[1].sequence_index, 7);
  EXPECT_EQ(batch.samples[1].position, 5);
  ASSERT_EQ(batch.copies.size(), 2U);
  EXPECT_EQ(batch.copies[1].from, 5);
  EXPECT_EQ(batch.copies[1].to, 6);
}

TEST(BatchBuilder, ScoresAreRowsOfTheBatchWithTheTokenBehindEach) {
  TwoSequences two;
  two.b.request.sampling.num_prompt_logprobs = 7;
  StepPlan plan;
  plan.slices = {{&two.a.sequences[0], 5, 1, 1}, {&two.b.sequences[0], 0, 3, 0, -1, 0, 0, 3}};
  plan.samples = {{&two.a.sequences[0], 0}};
  StepBatch batch;
  build_batch(plan, 4, batch);
  ASSERT_EQ(batch.scores.size(), 3U);
  for (std::int32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(batch.scores[static_cast<std::size_t>(i)].row, 1 + i);
    EXPECT_EQ(batch.scores[static_cast<std::size_t>(i)].token, 21 + i);
    EXPECT_EQ(batch.scores[static_cast<std::size_t>(i)].num_logprobs, 7);
  }
  EXPECT_THAT(batch.logit_rows, ElementsAre(0)) << "their logits are not forward's";
  // Computed again from position 1 on, and scored from 2 on.
  plan.slices = {{&two.b.sequences[0], 1, 4, 1, -1, 0, 2, 2}};
  plan.samples = {{&two.b.sequences[0], 0}};
  build_batch(plan, 4, batch);
  ASSERT_EQ(batch.scores.size(), 2U);
  EXPECT_EQ(batch.scores[0].row, 1);
  EXPECT_EQ(batch.scores[0].token, 23);
  EXPECT_EQ(batch.scores[1].row, 2);
  EXPECT_EQ(batch.scores[1].token, 24);
  EXPECT_THAT(batch.logit_rows, ElementsAre(3));
}

TEST(BatchBuilder, ATokenInFlightIsARowOfTheStepBefore) {
  TwoSequences two;
  Sequence& a = two.a.sequences[0];
  ASSERT_TRUE(two.blocks.make_room(a.blocks, 7));
  StepPlan plan;
  plan.slices = {{&a, 6, 1, 1, 3}, {&two.b.sequences[0], 0, 3, 0}};
  plan.samples = {{&a, 0}};
  StepBatch batch;
  build_batch(plan, 4, batch);
  EXPECT_THAT(batch.tokens, ElementsAre(in_flight_token(3), 20, 21, 22));
  EXPECT_EQ(in_flight_row(batch.tokens[0]), 3);
  EXPECT_LT(in_flight_row(batch.tokens[1]), 0);
  EXPECT_THAT(batch.positions, ElementsAre(6, 0, 1, 2));
  ASSERT_EQ(batch.samples.size(), 1U);
  EXPECT_EQ(batch.samples[0].position, 7);
  EXPECT_EQ(batch.samples[0].tokens.size(), 6U) << "what is known";
}

TEST(BatchBuilderDeathTest, ATokenThatIsNotKnownIsRefused) {
  TwoSequences two;
  StepPlan plan;
  plan.slices = {{&two.a.sequences[0], 6, 1, 1}};
  StepBatch batch;
  EXPECT_DEATH(build_batch(plan, 4, batch), "known");
}

}  // namespace
}  // namespace folio
