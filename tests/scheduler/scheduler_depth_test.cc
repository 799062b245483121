// Depth 2: a step is planned while the one before it is not committed. And what a schedule costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

constexpr SchedulerLimits kLimits{
    .block_size = 4, .num_blocks = 3, .max_context = 200, .max_num_seqs = 8, .max_batch_tokens = 16, .max_queue = 100};

Request request_of(RequestId id, std::size_t num_prompt_tokens, std::int64_t max_tokens) {
  Request request;
  request.id = id;
  request.prompt.assign(num_prompt_tokens, 5);
  request.max_tokens = max_tokens;
  return request;
}

struct Bare {
  explicit Bare(const SchedulerLimits& limits)
      : blocks(limits.num_blocks, limits.block_size), scheduler(blocks, limits, clock) {}
  BlockManager blocks;
  ManualClock clock;
  Scheduler scheduler;
};

const std::vector<TokenId> kOneToken = {9};

TEST(SchedulerDepth2, ATokenMayBeARowOfTheStepInFlight) {
  Bare bare(kLimits);
  ASSERT_FALSE(bare.scheduler.submit(request_of(1, 3, 3)));
  const StepPlan& first = bare.scheduler.schedule();
  ASSERT_EQ(first.slices.size(), 1U);
  EXPECT_EQ(first.slices[0].in_flight_row, -1);
  EXPECT_EQ(first.slices[0].num_logits, 1);

  const StepPlan& second = bare.scheduler.schedule();
  ASSERT_EQ(second.slices.size(), 1U);
  EXPECT_EQ(second.slices[0].first, 3);
  EXPECT_EQ(second.slices[0].in_flight_row, 0);
  EXPECT_EQ(second.slices[0].sequence->num_scheduled, 4);
  EXPECT_EQ(second.slices[0].sequence->num_computed, 0);

  bare.scheduler.commit(first, kOneToken, {});
  EXPECT_EQ(second.slices[0].sequence->num_computed, 3);
  const StepPlan& third = bare.scheduler.schedule();
  ASSERT_EQ(third.slices.size(), 1U);
  bare.scheduler.commit(second, kOneToken, {});
  // The third token is the last: nothing is planned past it, though it is not known yet.
  EXPECT_TRUE(bare.scheduler.schedule().slices.empty());
  EXPECT_EQ(bare.scheduler.commit(third, kOneToken, {}).sequences.at(0).finish, FinishReason::kLength);
  EXPECT_TRUE(bare.scheduler.empty());
}

TEST(SchedulerDepth2, TheSliceInFlightOfAnEndedSequenceIsDroppedAndItsBlocksWait) {
  Bare bare(kLimits);
  ASSERT_FALSE(bare.scheduler.submit(request_of(1, 3, 9)));
  const StepPlan& first = bare.scheduler.schedule();
  const StepPlan& second = bare.scheduler.schedule();
  const std::vector<FinishReason> stop = {FinishReason::kStopString};
  const Events& events = bare.scheduler.commit(first, kOneToken, stop);
  ASSERT_EQ(events.ended.size(), 1U);
  EXPECT_EQ(events.ended[0].output_tokens, 1);
  EXPECT_EQ(bare.blocks.num_available(), 2) << "the step in flight names a block";
  EXPECT_EQ(bare.scheduler.count_blocks().held, 1);
  EXPECT_EQ(bare.scheduler.broken_invariant(), std::nullopt);
  EXPECT_TRUE(bare.scheduler.commit(second, kOneToken, {}).empty());
  EXPECT_EQ(bare.blocks.num_available(), 3);
}

TEST(SchedulerDepth2, APreemptedSequenceKeepsTheTokenThatWasInFlight) {
  SchedulerLimits limits = kLimits;
  limits.num_blocks = 4;
  Bare bare(limits);
  ASSERT_FALSE(bare.scheduler.submit(request_of(1, 8, 9)));
  Request two_of = request_of(2, 3, 9);
  two_of.n = 2;
  ASSERT_FALSE(bare.scheduler.submit(two_of));
  const StepPlan& first = bare.scheduler.schedule();
  ASSERT_EQ(first.samples.size(), 3U);
  // The first takes the last block. 2.0 wants one of its own, for which 2.1 has to go: but the step in flight names it.
  const StepPlan& second = bare.scheduler.schedule();
  ASSERT_EQ(second.slices.size(), 1U);
  EXPECT_EQ(second.slices[0].sequence->owner->request.id, 1U);
  EXPECT_EQ(bare.scheduler.counts().num_preemptions, 1);
  EXPECT_EQ(bare.blocks.num_available(), 0);
  const std::vector<TokenId> three = {9, 9, 9};
  EXPECT_EQ(bare.scheduler.commit(first, three, {}).sequences.size(), 3U);
  const StepPlan& third = bare.scheduler.schedule();
  EXPECT_EQ(bare.scheduler.broken_invariant(), std::nullopt);
  bare.scheduler.commit(second, kOneToken, {});
  EXPECT_EQ(bare.scheduler.broken_invariant(), std::nullopt);
  EXPECT_FALSE(third.slices.empty());
}

TEST(SchedulerDepth2, APreemptedSequenceIsNotResumedBeforeItsTokenIsKnown) {
  Bare bare(kLimits);
  ASSERT_FALSE(bare.scheduler.submit(request_of(1, 3, 9)));
  const StepPlan& first = bare.scheduler.schedule();
  Request above = request_of(2, 11, 1);
  above.priority = 1;
  ASSERT_FALSE(bare.scheduler.submit(above));
  EXPECT_TRUE(bare.scheduler.schedule().slices.empty()) << "it waits for the block of the one it preempted";
  EXPECT_EQ(bare.scheduler.counts().num_preemptions, 1);
  bare.scheduler.end(2, FinishReason::kCancelled);
  bare.scheduler.commit(bare.scheduler.schedule(), {}, {});
  EXPECT_TRUE(bare.scheduler.schedule().slices.empty());
  bare.scheduler.commit(first, kOneToken, {});
  const StepPlan& next = bare.scheduler.schedule();
  ASSERT_EQ(next.slices.size(), 1U);
  EXPECT_EQ(next.slices[0].count, 4);
}

TEST(SchedulerDepth2, AFailedStepTakesTheSlicesBehindItWithIt) {
  Bare bare(kLimits);
  ASSERT_FALSE(bare.scheduler.submit(request_of(1, 3, 9)));
  const StepPlan& first = bare.scheduler.schedule();
  ASSERT_FALSE(bare.scheduler.submit(request_of(2, 3, 1)));
  const StepPlan& second = bare.scheduler.schedule();
  ASSERT_EQ(second.slices.size(), 2U);
  EXPECT_EQ(bare.scheduler.fail(first).sequences.at(0).finish, FinishReason::kError);
  const std::vector<TokenId> two = {9, 9};
  const Events& events = bare.scheduler.commit(second, two, {});
  ASSERT_EQ(events.sequences.size(), 1U);
  EXPECT_EQ(events.sequences[0].request, 2U);
  EXPECT_EQ(events.sequences[0].sample, 1);
  EXPECT_EQ(bare.blocks.num_available(), 3);
}

TEST(SchedulerDepth2, GivesTheSameAsDepth1) {
  for (int depth : {1, 2}) {
    SchedulerLimits limits = kLimits;
    limits.num_blocks = 9;
    World world(limits);
    for (int i = 0; i < 12; ++i) world.submit(1 + i % 7, 14, i % 3, 1 + i % 2);
    world.run_to_end(depth);
    world.expect_as_alone();
    EXPECT_GT(world.scheduler.counts().num_preemptions, 0);
  }
}

TEST(SchedulerDepthDeathTest, StepsCommitInOrder) {
  Bare bare(kLimits);
  ASSERT_FALSE(bare.scheduler.submit(request_of(1, 3, 9)));
  bare.scheduler.schedule();
  const StepPlan& second = bare.scheduler.schedule();
  EXPECT_DEATH(bare.scheduler.commit(second, kOneToken, {}), "in the order of their plans");
  EXPECT_DEATH(bare.scheduler.schedule(), "one more is planned");
}

// The cost of a step follows the running sequences, not those that wait: 1,000 run, 0 or 10,000 wait.
TEST(SchedulerCost, DoesNotGrowWithTheQueue) {
  const auto cost = [](std::int32_t num_waiting) {
    SchedulerLimits limits{.block_size = 16,
                           .num_blocks = 8000,
                           .max_context = 4096,
                           .max_num_seqs = 1000,
                           .max_batch_tokens = 4000,
                           .max_queue = 20000};
    Bare bare(limits);
    RequestId id = 0;
    for (int i = 0; i < 1000 + num_waiting; ++i) EXPECT_FALSE(bare.scheduler.submit(request_of(++id, 4, 1000)));
    Duration best = Duration::max();
    for (int i = 0; i < 60; ++i) {
      const auto begin = std::chrono::steady_clock::now();
      const StepPlan& plan = bare.scheduler.schedule();
      EXPECT_EQ(plan.slices.size(), 1000U);
      const std::vector<TokenId> tokens(static_cast<std::size_t>(plan.num_samples()), 1);
      bare.scheduler.commit(plan, tokens, {});
      if (i > 0) best = std::min<Duration>(best, std::chrono::steady_clock::now() - begin);
    }
    return best;
  };
  const Duration alone = cost(0);
  const Duration crowded = cost(10000);
  RecordProperty("us_alone", static_cast<int>(to_ms(alone) * 1000));
  RecordProperty("us_crowded", static_cast<int>(to_ms(crowded) * 1000));
  EXPECT_LT(to_ms(crowded), 4 * to_ms(alone) + 0.2);
}

}  // namespace
}  // namespace folio
