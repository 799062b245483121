// n sequences of one prompt: it is computed once, its blocks are held once, and they grow only by what differs.
#include <gtest/gtest.h>

#include <numeric>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

constexpr SchedulerLimits kRoomy{.block_size = 16,
                                 .num_blocks = 200,
                                 .max_context = 500,
                                 .max_num_seqs = 8,
                                 .max_batch_tokens = 64,
                                 .max_queue = 100};

void expect_equal_outputs(World& world, RequestId id) {
  for (const World::Told& told : world.asked().at(id).told) {
    EXPECT_EQ(told.outputs, world.told(id).outputs);
    EXPECT_EQ(told.finish, FinishReason::kLength);
  }
}

TEST(SchedulerFork, BlocksAreHeldExactly) {
  for (const std::int32_t n : {1, 2, 3, 4}) {
    for (const std::int32_t num_prompt : {1, 15, 16, 17, 31, 32, 33}) {
      SCOPED_TRACE(std::to_string(n) + " of " + std::to_string(num_prompt) + " tokens");
      World world(kRoomy);
      const RequestId id = world.submit(num_prompt, 40, 0, n);
      world.step();
      for (std::int32_t num_outputs = 1; num_outputs < 40; ++num_outputs) {
        const std::int32_t num_computed = num_prompt + num_outputs - 1;
        const std::int32_t num_shared = num_outputs == 1 ? world.blocks.blocks_for(num_prompt) : num_prompt / 16;
        const std::int32_t held = num_shared + n * (world.blocks.blocks_for(num_computed) - num_shared);
        ASSERT_EQ(world.scheduler.count_blocks().held, held) << num_outputs << " outputs";
        ASSERT_EQ(world.told(id, n - 1).outputs.size(), static_cast<std::size_t>(num_outputs));
        world.step();
      }
      EXPECT_TRUE(world.scheduler.empty());
      expect_equal_outputs(world, id);
      world.expect_as_alone();
      EXPECT_EQ(world.met.slice_tokens, num_prompt + n * 39);
      EXPECT_EQ(world.met.forks, n - 1);
      EXPECT_EQ(world.summary(id).output_tokens, n * 40);
      EXPECT_EQ(world.summary(id).peak_blocks,
                num_prompt / 16 + n * (world.blocks.blocks_for(num_prompt + 39) - num_prompt / 16));
    }
  }
}

TEST(SchedulerFork, OnlyThoseWhoWriteBesideOthersCopy) {
  World world(kRoomy);
  world.submit(16, 10, 0, 4);  // a prompt that ends with its block: the next token goes into a block of its own
  world.run_to_end();
  EXPECT_EQ(world.met.copies, 0);
  World inside(kRoomy);
  inside.submit(17, 10, 0, 4);
  inside.run_to_end();
  EXPECT_EQ(inside.met.copies, 3);
}

TEST(SchedulerFork, SiblingsWithoutAPlaceStartLaterFromTheSharedBlocks) {
  for (const int depth : {1, 2}) {
    SchedulerLimits limits = kRoomy;
    limits.max_num_seqs = 3;
    World world(limits);
    const RequestId other = world.submit(5, 30);
    world.step_at(depth);
    const RequestId id = world.submit(33, 20, 0, 3);
    world.run_to_end(depth);
    world.expect_as_alone();
    expect_equal_outputs(world, id);
    EXPECT_EQ(world.met.forks, 1);
    // The third finds what its siblings sealed: the 32 tokens of whole blocks, and of the third block all but the last.
    EXPECT_EQ(world.met.slice_tokens, 5 + 29 + 33 + 3 * 19 + 1);
    EXPECT_EQ(world.told(other).outputs.size(), 30U);
  }
}

TEST(SchedulerFork, ALeaderThatIsCancelledInItsPrefillLeavesThePromptToTheNext) {
  for (const int depth : {1, 2}) {
    World world(kRoomy);
    const RequestId id = world.submit(200, 5, 0, 3);
    world.step_at(depth);
    world.step_at(depth);
    world.scheduler.end(id, 0, FinishReason::kCancelled);
    world.run_to_end(depth);
    world.expect_as_alone();
    EXPECT_EQ(world.told(id, 0).finish, FinishReason::kCancelled);
    EXPECT_EQ(world.told(id, 1).outputs.size(), 5U);
    EXPECT_EQ(world.told(id, 2).outputs, world.told(id, 1).outputs);
    // At depth 1 nothing of what the first computed is computed again; at depth 2 its slice in flight is.
    EXPECT_LE(world.met.slice_tokens, 200 + 2 * 4 + (depth == 1 ? 0 : 64));
  }
}

// The fork was planned and its step is in flight when one of them ends.
TEST(SchedulerFork, OneThatIsCancelledWhileTheForkIsInFlightLeavesTheOthers) {
  for (const std::int32_t cancelled : {0, 1, 2}) {
    for (const int num_more_steps : {0, 1}) {
      World world(kRoomy);
      const RequestId id = world.submit(33, 12, 0, 3);
      world.step_at(2);  // planned, not committed
      ASSERT_EQ(world.met.forks, 2);
      for (int i = 0; i < num_more_steps; ++i) world.step_at(2);
      world.scheduler.end(id, cancelled, FinishReason::kCancelled);
      world.run_to_end(2);
      world.expect_as_alone();
      for (const std::int32_t index : {0, 1, 2}) {
        const World::Told& told = world.told(id, index);
        EXPECT_EQ(told.finish, index == cancelled ? FinishReason::kCancelled : FinishReason::kLength);
        EXPECT_TRUE(index == cancelled || told.outputs.size() == 12U);
      }
    }
  }
}

TEST(SchedulerFork, AFailedForkEndsAllOfThem) {
  for (const int depth : {1, 2}) {
    World world(kRoomy);
    const RequestId id = world.submit(33, 12, 0, 3);
    world.fail_next();
    world.run_to_end(depth);
    for (const std::int32_t index : {0, 1, 2}) EXPECT_EQ(world.told(id, index).finish, FinishReason::kError);
    EXPECT_EQ(world.blocks.num_cached(), 0);
  }
}

TEST(SchedulerFork, OneSiblingThatIsPreemptedTakesNothingFromTheShared) {
  for (const int depth : {1, 2}) {
    SchedulerLimits limits = kRoomy;
    limits.num_blocks = 7;  // of four sequences that want two shared and two own ones each, all ten are not to be had
    World world(limits);
    const RequestId id = world.submit(32, 30, 0, 4);
    world.run_to_end(depth);
    world.expect_as_alone();
    expect_equal_outputs(world, id);
    EXPECT_GT(world.summary(id).num_preemptions, 0);
    EXPECT_LE(world.summary(id).peak_blocks, 7);
  }
}

TEST(SchedulerFork, DeadlinesEndAllOfThemAtOnce) {
  World world(kRoomy);
  Request request;
  request.prompt = prompt_of(1, 33);
  request.max_tokens = 100;
  request.n = 3;
  request.deadline = world.clock.now() + std::chrono::milliseconds(10);
  const RequestId id = world.submit(std::move(request));
  world.run_to_end();
  for (const std::int32_t index : {0, 1, 2}) {
    EXPECT_EQ(world.told(id, index).finish, FinishReason::kDeadline);
    EXPECT_EQ(world.told(id, index).outputs.size(), 10U);
  }
}

}  // namespace
}  // namespace folio
