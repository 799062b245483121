// The rules of the order, one by one: who starts, who gets tokens, who is taken from.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

constexpr SchedulerLimits kRoomy{.block_size = 4,
                                 .num_blocks = 100,
                                 .max_context = 200,
                                 .max_num_seqs = 8,
                                 .max_batch_tokens = 16,
                                 .max_queue = 100};

TEST(SchedulerRules, OneStepMixesRunningOutputsWithAChunk) {
  World world(kRoomy);
  world.submit(10, 20);
  EXPECT_EQ(world.step(), "1:10");
  world.submit(40, 20);
  EXPECT_EQ(world.step(), "1:1 2:15");
  EXPECT_EQ(world.step(), "1:1 2:15");
  EXPECT_EQ(world.step(), "1:1 2:10");
  EXPECT_EQ(world.step(), "1:1 2:1");
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerRules, WhileOthersWaitOnePrefillTakesHalfOfThePrefillTokens) {
  World world(kRoomy);
  world.submit(1, 30);
  world.step();
  world.submit(100, 5);
  EXPECT_EQ(world.step(), "1:1 2:15");
  world.submit(60, 5);
  EXPECT_EQ(world.step(), "1:1 2:8 3:7");
  world.submit(3, 5);  // what two halves leave
  EXPECT_EQ(world.step(), "1:1 2:7 3:7 4:1");
}

TEST(SchedulerRules, WhatThoseBehindHaveNoUseForGoesBackToTheFirst) {
  World world(kRoomy);
  world.submit(100, 5);
  world.submit(3, 5);
  EXPECT_EQ(world.step(), "1:13 2:3");
}

TEST(SchedulerRules, AShortNewcomerIsServedWhileALongPromptIsUnderWay) {
  World world(kRoomy);
  world.submit(190, 5);
  world.step();
  const RequestId newcomer = world.submit(8, 5);
  EXPECT_EQ(world.step(), "1:8 2:8");
  EXPECT_EQ(world.told(newcomer).outputs.size(), 1U);
}

// The drawing in docs/architecture.md.
TEST(SchedulerRules, TheWorkedExampleIsTrue) {
  World world(kRoomy);
  const auto submit = [&](std::vector<TokenId> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.max_tokens = 20;
    return world.submit(std::move(request));
  };
  const std::vector<TokenId> beginning = prompt_of(9, 32);
  ASSERT_EQ(world.submit(4, 20), 1U);  // A
  ASSERT_EQ(world.submit(4, 20), 2U);  // B
  EXPECT_EQ(world.step(), "1:4 2:4");
  const RequestId c = submit(joined(beginning, prompt_of(10, 22)));
  EXPECT_EQ(world.step(), "1:1 2:1 3:14") << "C has 40 left";
  ASSERT_EQ(world.submit(6, 20), 4U);                                // D
  const RequestId e = submit(joined(beginning, prompt_of(11, 10)));  // E
  ASSERT_EQ(world.submit(5, 20), 6U);                                // F
  EXPECT_EQ(world.step(), "1:1 2:1 3:7 4:6 6:1");
  EXPECT_EQ(world.step(), "1:1 2:1 4:1 3:9 6:4");
  EXPECT_EQ(world.step(), "1:1 2:1 4:1 6:1 3:12");
  EXPECT_EQ(world.step(), "1:1 2:1 4:1 6:1 3:6 5:6") << "C has sealed the last block that both have";
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(c).cached_tokens, 0);
  EXPECT_EQ(world.summary(e).cached_tokens, 32);
}

TEST(SchedulerRules, PriorityComesBeforeArrivalInTheQueue) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 1;
  World world(limits);
  world.submit(2, 1);
  world.submit(2, 1, -1);
  world.submit(2, 1, 1);
  world.submit(2, 1, 1);
  EXPECT_EQ(world.step(), "3:2");
  EXPECT_EQ(world.step(), "4:2");
  EXPECT_EQ(world.step(), "1:2");
  EXPECT_EQ(world.step(), "2:2");
}

TEST(SchedulerRules, ThePromptOfNSequencesIsComputedOnceAndTheyEndAlone) {
  World world(kRoomy);
  world.submit(3, 2, 0, 3);
  EXPECT_EQ(world.step(), "1.0:3");
  for (std::int32_t index : {0, 1, 2}) EXPECT_EQ(world.told(1, index).outputs.size(), 1U);
  world.scheduler.end(1, 1, FinishReason::kCancelled);
  EXPECT_EQ(world.step(), "");
  EXPECT_EQ(world.step(), "1.0:1 1.2:1");
  EXPECT_EQ(world.told(1, 1).finish, FinishReason::kCancelled);
  EXPECT_EQ(world.told(1, 2).finish, FinishReason::kLength);
  EXPECT_TRUE(world.scheduler.empty());
}

TEST(SchedulerRules, ASequenceHoldsTokensOnlyFromItsFirstAdmissionOn) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 2;
  World world(limits);
  world.submit(3, 4);
  const StepPlan& plan = world.scheduler.schedule();
  ASSERT_EQ(plan.slices.size(), 1U);
  const RequestState& first = *plan.slices[0].sequence->owner;
  EXPECT_EQ(first.sequences[0].tokens, first.request.prompt);
  world.scheduler.commit(plan, std::vector<TokenId>{1}, {});

  world.submit(5, 4, 0, 2);  // one place is left: index 1 waits
  const StepPlan& crowded = world.scheduler.schedule();
  ASSERT_EQ(crowded.slices.size(), 2U);
  const RequestState& second = *crowded.slices[1].sequence->owner;
  ASSERT_EQ(second.request.id, 2U);
  const Sequence& waiting = second.sequences[1];
  EXPECT_EQ(second.sequences[0].tokens, second.request.prompt);
  EXPECT_EQ(waiting.state, SequenceState::kWaiting);
  EXPECT_EQ(waiting.tokens.capacity(), 0U);
  EXPECT_EQ(waiting.num_tokens(), 5);
  EXPECT_EQ(waiting.num_known(), 5);
  EXPECT_EQ(waiting.num_output_tokens(), 0);
  EXPECT_EQ(waiting.num_pending(), 5);
  EXPECT_EQ(world.scheduler.broken_invariant(), std::nullopt);
}

TEST(SchedulerRules, NeverMoreRunThanTheBudgetHasTokens) {
  SchedulerLimits limits = kRoomy;
  limits.max_batch_tokens = 3;
  World world(limits);
  for (int i = 0; i < 6; ++i) world.submit(1, 4);
  EXPECT_EQ(world.step(), "1:1 2:1 3:1");
  EXPECT_EQ(world.step(), "1:1 2:1 3:1");
  EXPECT_EQ(world.scheduler.counts().running_requests, 3);
  EXPECT_EQ(world.scheduler.counts().waiting_requests, 3);
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerRules, AChunkHasAtMostTheCap) {
  SchedulerLimits limits = kRoomy;
  limits.max_prefill_chunk = 7;
  World world(limits);
  world.submit(15, 2);
  EXPECT_EQ(world.step(), "1:7");
  EXPECT_EQ(world.step(), "1:7");
  EXPECT_EQ(world.step(), "1:1");
  EXPECT_EQ(world.step(), "1:1");
  EXPECT_TRUE(world.scheduler.empty());
}

// A pool of 5 blocks of 4 for the tests of victims.
SchedulerLimits tight() {
  SchedulerLimits limits = kRoomy;
  limits.num_blocks = 5;
  limits.max_batch_tokens = 64;
  return limits;
}

TEST(SchedulerVictims, TheLastInTheOrderGivesItsBlocksAndComesBackWithItsOutputs) {
  World world(tight());
  const RequestId first = world.submit(7, 12);
  const RequestId last = world.submit(8, 12);
  EXPECT_EQ(world.step(), "1:7 2:8");
  EXPECT_EQ(world.step(), "1:1 2:1");  // the last block
  EXPECT_EQ(world.step(), "1:1");      // needs one more: the second is preempted and waits
  EXPECT_EQ(world.scheduler.counts().num_preemptions, 1);
  EXPECT_EQ(world.told(last).outputs.size(), 2U);
  while (world.told(first).finish == FinishReason::kNone) world.step();
  EXPECT_EQ(world.step(), "2:10");  // prompt and outputs, in one chunk
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.asked()[last].summary->num_preemptions, 1);
  EXPECT_EQ(world.asked()[last].summary->recomputed_tokens, 9);
  EXPECT_EQ(world.asked()[last].summary->num_chunks, 1);
  EXPECT_EQ(world.asked()[first].summary->peak_blocks, 5);
}

TEST(SchedulerVictims, AWaitingRequestTakesNothingFromAnEqual) {
  World world(tight());
  world.submit(8, 8);
  world.submit(4, 4);
  world.step();
  world.submit(12, 2);
  for (int i = 0; i < 3; ++i) world.step();
  EXPECT_EQ(world.told(2).finish, FinishReason::kLength);
  EXPECT_EQ(world.scheduler.counts().num_preemptions, 0);
  EXPECT_FALSE(world.told(3).started);
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerVictims, AWaitingRequestTakesTheBlocksOfALowerPriority) {
  World world(tight());
  world.submit(8, 8);
  world.submit(4, 4);
  EXPECT_EQ(world.step(), "1:8 2:4");
  world.submit(12, 2, 1);
  EXPECT_EQ(world.step(), "3:12");  // the free blocks were for the growth of 1 and 2, so both have to go
  EXPECT_EQ(world.scheduler.counts().num_preemptions, 2);
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerVictims, AWaitingRequestTakesThePlaceOfALowerPriority) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 2;
  World world(limits);
  world.submit(4, 8, -1);
  world.submit(4, 8);
  world.step();
  world.submit(4, 3);  // an equal of 2: but 1 is below it
  EXPECT_EQ(world.step(), "2:1 3:4");
  world.submit(4, 3);  // nobody is below it
  EXPECT_EQ(world.step(), "2:1 3:1");
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerVictims, AWaitingRequestTakesTheTokensOfALowerPriority) {
  SchedulerLimits limits = kRoomy;
  limits.max_batch_tokens = 3;  // each running output has its token: none is left
  World world(limits);
  world.submit(1, 8);
  world.submit(1, 8, 1);
  world.submit(1, 8);
  world.step();
  EXPECT_EQ(world.step(), "2:1 1:1 3:1");
  world.submit(3, 3, 1);
  EXPECT_EQ(world.step(), "2:1 1:1 4:1") << "3 gave its token";
  world.submit(3, 3);
  world.step();
  EXPECT_EQ(world.scheduler.counts().num_preemptions, 1) << "an equal takes nothing";
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerVictims, GoInTheOrderOfPriorityThenOfFirstAdmission) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 4;
  World world(limits);
  world.submit(1, 30);
  world.step();
  world.submit(1, 30, 1);
  world.step();
  world.submit(1, 30);
  world.submit(1, 30, -1);
  world.step();
  EXPECT_EQ(world.step(), "2:1 1:1 3:1 4:1");
  for (const char* left : {"2:1 1:1 3:1 5:1", "5:1 2:1 1:1 6:1", "5:1 6:1 2:1 7:1", "5:1 6:1 7:1 8:1"}) {
    world.submit(1, 30, 2);
    EXPECT_EQ(world.step(), left);
  }
  world.submit(1, 30, 2);
  EXPECT_EQ(world.step(), "5:1 6:1 7:1 8:1") << "an equal waits";
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerVictims, NobodyIsPreemptedWhenThatWouldNotBeEnough) {
  World world(tight());
  world.submit(8, 8, 1);
  world.submit(4, 4, -1);
  world.step();
  world.submit(16, 2, 0);  // needs 4 blocks; 2 of them are out of its reach
  world.step();
  EXPECT_EQ(world.scheduler.counts().num_preemptions, 0);
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerVictims, WhoCannotGrowAndMayTakeFromNobodyWaitsAndKeepsItsBlocks) {
  World world(tight());
  world.submit(8, 4);
  world.submit(8, 4);
  EXPECT_EQ(world.step(), "1:8 2:8");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(world.step(), "1:1");  // 2 would need a block too: there was one
  EXPECT_EQ(world.step(), "2:1");
  EXPECT_EQ(world.scheduler.counts().num_preemptions, 0);
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerVictims, AResumedSequenceIsSparedUntilItGaveAToken) {
  RequestState state;
  state.request.prompt = {1};
  BlockManager blocks(1, 1);
  Sequence taker(state, 0, blocks.make_table({}));
  Sequence victim(state, 1, blocks.make_table({}));
  EXPECT_TRUE(policy::may_take(taker, false, victim));
  victim.owes_token = true;
  EXPECT_FALSE(policy::may_take(taker, false, victim));
  EXPECT_TRUE(policy::may_take(taker, true, victim)) << "but the first may take from anyone";
  RequestState higher;
  higher.request.priority = 1;
  Sequence above(higher, 0, blocks.make_table({}));
  EXPECT_TRUE(policy::may_take(above, false, victim)) << "and a higher priority";
}

// Two requests that cannot both have what they want (field report Q01 c): one waits for the other, and neither takes
// the other's blocks in turn.
TEST(SchedulerVictims, TwoGrowingRequestsDoNotPreemptEachOtherInTurn) {
  SchedulerLimits limits{.block_size = 16, .num_blocks = 20, .max_context = 8192, .max_batch_tokens = 512};
  World world(limits);
  world.submit(100, 200);
  world.submit(100, 200);
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.asked()[1].summary->num_preemptions, 0);
  EXPECT_LE(world.asked()[2].summary->num_preemptions, 2);
  EXPECT_LE(world.num_steps, 420);
}

// Chunks of one token make a recompute long: those that were resumed are spared from everyone but the first.
TEST(SchedulerVictims, EveryStepAdvancesTheFirst) {
  for (std::int32_t num_blocks = 4; num_blocks <= 14; ++num_blocks) {
    SchedulerLimits limits = tight();
    limits.num_blocks = num_blocks;
    limits.max_prefill_chunk = 1;
    World world(limits);
    for (int i = 0; i < 8; ++i) world.submit(3 + i % 3, 2 + 5 * (i % 3));
    for (RequestId first = 1; first <= 8; ++first) {
      while (world.told(first).finish == FinishReason::kNone) {
        ASSERT_THAT(world.step(), testing::ContainsRegex("(^| )" + std::to_string(first) + ":")) << num_blocks;
      }
    }
    world.expect_as_alone();
  }
}

}  // namespace
}  // namespace folio
