// How requests end, and that nothing of theirs is left.
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

using std::chrono::milliseconds;

constexpr SchedulerLimits kRoomy{.block_size = 4,
                                 .num_blocks = 100,
                                 .max_context = 200,
                                 .max_num_seqs = 2,
                                 .max_batch_tokens = 16,
                                 .max_queue = 100};

RequestId submit_until(World& world, Duration time, std::int64_t num_prompt_tokens, std::int64_t max_tokens) {
  Request request;
  request.prompt.assign(static_cast<std::size_t>(num_prompt_tokens), 5);
  request.max_tokens = max_tokens;
  request.deadline = world.clock.now() + time;
  return world.submit(std::move(request));
}

TEST(SchedulerEnds, ALoneRequestThatOutgrowsThePoolEndsWithLength) {
  SchedulerLimits limits = kRoomy;
  limits.block_size = 16;
  limits.num_blocks = 20;
  limits.max_context = 8192;
  limits.max_batch_tokens = 512;
  World world(limits);
  const RequestId id = world.submit(200, 500);
  world.run_to_end();
  EXPECT_EQ(world.told(id).finish, FinishReason::kLength);
  EXPECT_EQ(world.told(id).outputs.size(), 121U);  // 320 slots, and the last token needs none
  world.expect_as_alone();
}

TEST(SchedulerEnds, OnePreemptedAtTheSizeOfThePoolEndsWithLengthToo) {
  SchedulerLimits limits = kRoomy;
  limits.num_blocks = 2;
  World world(limits);
  const RequestId id = world.submit(7, 50);
  world.step();
  world.step();
  ASSERT_EQ(world.told(id).outputs.size(), 2U);  // 9 tokens, and 8 slots
  world.submit(4, 2, 1);
  world.run_to_end();
  EXPECT_EQ(world.told(id).finish, FinishReason::kLength);
  world.expect_as_alone();
}

TEST(SchedulerEnds, MaxTokensUnsetEndsAtTheContext) {
  SchedulerLimits limits = kRoomy;
  limits.max_context = 128;
  World world(limits);
  const RequestId id = world.submit(100, StoppingParams::kNoLimit);
  world.run_to_end();
  EXPECT_EQ(world.told(id).outputs.size(), 28U);
  EXPECT_EQ(world.told(id).finish, FinishReason::kLength);
}

TEST(SchedulerEnds, AnExpiredRequestIsDroppedBeforeMoreWorkIsSpentOnIt) {
  World world(kRoomy);
  const RequestId queued = submit_until(world, milliseconds(0), 10, 5);
  EXPECT_EQ(world.step(), "");
  EXPECT_EQ(world.told(queued).finish, FinishReason::kDeadline);
  EXPECT_TRUE(world.told(queued).outputs.empty());

  const RequestId running = submit_until(world, milliseconds(4), 10, 100);
  while (!world.scheduler.empty()) world.step();
  EXPECT_EQ(world.told(running).finish, FinishReason::kDeadline);
  EXPECT_EQ(world.told(running).outputs.size(), 4U);
  EXPECT_EQ(world.blocks.num_available(), 100);
}

TEST(SchedulerEnds, ADeadlineThatIsMetChangesNothing) {
  World world(kRoomy);
  const RequestId id = submit_until(world, milliseconds(50), 10, 5);
  world.run_to_end();
  EXPECT_EQ(world.told(id).finish, FinishReason::kLength);
  world.clock.advance(milliseconds(100));
  world.submit(3, 1);
  world.run_to_end();
}

TEST(SchedulerEnds, CancelledWhileQueuedInPrefillAndInDecode) {
  World world(kRoomy);
  const RequestId decoding = world.submit(3, 50);
  const RequestId prefilling = world.submit(150, 50);
  const RequestId queued = world.submit(3, 50);
  for (int i = 0; i < 3; ++i) world.step();
  ASSERT_FALSE(world.told(decoding).outputs.empty());
  ASSERT_TRUE(world.told(prefilling).started);
  ASSERT_TRUE(world.told(prefilling).outputs.empty());
  ASSERT_FALSE(world.told(queued).started);
  for (RequestId id : {decoding, prefilling, queued, RequestId{77}}) {
    world.scheduler.end(id, FinishReason::kCancelled);
    world.scheduler.end(id, FinishReason::kError);  // the first reason stands
  }
  EXPECT_EQ(world.step(), "");
  for (RequestId id : {decoding, prefilling, queued}) EXPECT_EQ(world.told(id).finish, FinishReason::kCancelled);
  EXPECT_TRUE(world.scheduler.empty());
  EXPECT_EQ(world.scheduler.queue().requests, 0);
  EXPECT_EQ(world.scheduler.queue().prompt_tokens, 0);
  EXPECT_EQ(world.blocks.num_available(), 100);
  EXPECT_EQ(world.scheduler.count_blocks().held, 0);
}

TEST(SchedulerEnds, AFailedStepEndsItsRequestsAndNoOther) {
  World world(kRoomy);
  const RequestId one = world.submit(3, 50, 0, 2);
  const RequestId queued = world.submit(3, 5);
  world.step();
  world.fail_next();
  world.step();
  EXPECT_EQ(world.told(one, 0).finish, FinishReason::kError);
  EXPECT_EQ(world.told(one, 1).finish, FinishReason::kError);
  EXPECT_EQ(world.told(one, 0).outputs.size(), 1U);
  world.run_to_end();
  EXPECT_EQ(world.told(queued).finish, FinishReason::kLength);
  world.expect_as_alone();
}

TEST(SchedulerEnds, TheQueueHasALimitAndStartedRequestsAreNotInIt) {
  SchedulerLimits limits = kRoomy;
  limits.max_queue = 2;
  World world(limits);
  EXPECT_NE(world.submit(3, 5), 0U);
  EXPECT_NE(world.submit(3, 5), 0U);
  EXPECT_EQ(world.submit(3, 5), 0U);
  world.step();
  EXPECT_NE(world.submit(3, 5), 0U);
  world.run_to_end();
  world.expect_as_alone();
}

TEST(SchedulerEnds, TheSummarySaysWhenAndHowMuch) {
  World world(kRoomy);
  const TimePoint start = world.clock.now();
  const RequestId id = world.submit(40, 3);
  world.run_to_end();
  const RequestSummary& summary = *world.asked()[id].summary;
  EXPECT_EQ(summary.prompt_tokens, 40);
  EXPECT_EQ(summary.output_tokens, 3);
  EXPECT_EQ(summary.num_chunks, 3);
  EXPECT_EQ(summary.peak_blocks, 11);
  EXPECT_EQ(summary.arrival, start);
  EXPECT_EQ(summary.first_scheduled, start);
  EXPECT_EQ(summary.first_token, start + milliseconds(2));
  EXPECT_EQ(summary.end, start + milliseconds(4));
  EXPECT_EQ(world.scheduler.counts().prompt_tokens, 40);
  EXPECT_EQ(world.scheduler.counts().output_tokens, 3);
  EXPECT_EQ(world.scheduler.counts().num_steps, 5);
}

TEST(SchedulerEnds, ABlockLeakedOnPurposeIsSeen) {
  World world(kRoomy);
  world.submit(10, 5);
  world.step();
  EXPECT_EQ(world.scheduler.count_blocks().unaccounted, 0);
  BlockTable stolen = world.blocks.make_table({});
  ASSERT_TRUE(world.blocks.make_room(stolen, 8));
  EXPECT_EQ(world.scheduler.count_blocks().unaccounted, 2);
  EXPECT_NE(world.scheduler.broken_invariant(), std::nullopt);
  stolen.clear();
  EXPECT_EQ(world.scheduler.broken_invariant(), std::nullopt);
}

}  // namespace
}  // namespace folio
