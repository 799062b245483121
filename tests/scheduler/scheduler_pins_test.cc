// Pinned prefixes stay although nobody runs on them, within a quota, and give way last.
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

using std::chrono::milliseconds;

SchedulerLimits limits_of(std::int32_t num_blocks, std::int32_t max_pinned) {
  return {.block_size = 16,
          .num_blocks = num_blocks,
          .max_context = 2000,
          .max_num_seqs = 8,
          .max_batch_tokens = 128,
          .max_queue = 100,
          .max_pinned_blocks = max_pinned};
}

RequestId pin(World& world, std::vector<TokenId> prompt, std::int64_t pin_ms, std::int64_t max_tokens = 2) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.cache.pin_ms = pin_ms;
  const RequestId id = world.submit(std::move(request));
  world.run_until(id);
  return id;
}

RequestId ask_again(World& world, std::vector<TokenId> prompt) {
  return pin(world, std::move(prompt), 0);
}

TEST(SchedulerPins, HoldAPrefixUntilTheyExpire) {
  World world(limits_of(10, 10));
  const RequestId first = pin(world, prompt_of(1, 70), 500);
  EXPECT_EQ(world.summary(first).pinned_tokens, 64);
  EXPECT_EQ(world.scheduler.pins().num_blocks(), 4);
  EXPECT_EQ(world.scheduler.count_blocks().held, 4);
  for (int i = 0; i < 10; ++i) {
    world.submit(90, 4);  // all that is not pinned
    world.run_to_end();
  }
  EXPECT_EQ(world.summary(ask_again(world, prompt_of(1, 70))).cached_tokens, 64);
  EXPECT_EQ(world.scheduler.counts().num_pins_released, 0);
  world.clock.advance(milliseconds(500));
  world.scheduler.release_expired_pins();
  EXPECT_EQ(world.scheduler.pins().size(), 0);
  EXPECT_EQ(world.blocks.num_available(), 10);
  world.submit(150, 4);
  world.run_to_end();
  EXPECT_EQ(world.summary(ask_again(world, prompt_of(1, 70))).cached_tokens, 0);
}

TEST(SchedulerPins, LastFromWhenThePromptWasComputed) {
  World world(limits_of(20, 20));
  Request request;
  request.prompt = prompt_of(1, 256);
  request.max_tokens = 2;
  request.cache.pin_ms = 100;
  world.submit(std::move(request));
  const TimePoint start = world.clock.now();
  world.run_to_end();
  EXPECT_EQ(world.scheduler.pins().next_expiry(), start + milliseconds(1) + milliseconds(100)) << "the second step's";
}

// What is in the cache already is pinned as well, also when no block of it gets full again.
TEST(SchedulerPins, AWarmPromptIsPinned) {
  for (const std::int64_t num_tokens : {64, 65, 70, 79, 80}) {
    World world(limits_of(20, 20));
    ask_again(world, prompt_of(1, num_tokens));
    const RequestId warm = pin(world, prompt_of(1, num_tokens), 1000);
    EXPECT_GT(world.summary(warm).cached_tokens, 0);
    EXPECT_EQ(world.summary(warm).pinned_tokens, num_tokens / 16 * 16) << num_tokens;
    EXPECT_EQ(world.scheduler.pins().num_blocks(), num_tokens / 16);
  }
}

TEST(SchedulerPins, ThePromptOfManyIsPinnedWhoeverOfThemIsLeft) {
  World world(limits_of(20, 20));
  Request request;
  request.prompt = prompt_of(1, 40);
  request.max_tokens = 5;
  request.n = 3;
  request.cache.pin_ms = 1000;
  const RequestId id = world.submit(std::move(request));
  world.step_at(2);  // the fork is in flight
  world.scheduler.end(id, 0, FinishReason::kCancelled);
  world.run_to_end(2);
  EXPECT_EQ(world.summary(id).pinned_tokens, 32);
}

TEST(SchedulerPins, BypassPromptsAndShortOnesAreNotPinned) {
  World world(limits_of(20, 20));
  EXPECT_EQ(world.summary(pin(world, prompt_of(1, 15), 1000, 40)).pinned_tokens, 0);
  Request request;
  request.prompt = prompt_of(2, 64);
  request.max_tokens = 2;
  request.cache = {.salt = {}, .bypass = true, .pin_ms = 1000};
  const RequestId id = world.submit(std::move(request));
  world.run_to_end();
  EXPECT_EQ(world.summary(id).pinned_tokens, 0);
  EXPECT_EQ(world.scheduler.pins().size(), 0);
}

TEST(SchedulerPins, HaveAQuotaOfDistinctBlocks) {
  World world(limits_of(40, 5));
  const auto one = joined(prompt_of(1, 48), std::vector<TokenId>(16, 1));
  const auto two = joined(prompt_of(1, 48), std::vector<TokenId>(16, 2));
  const auto three = joined(prompt_of(1, 48), std::vector<TokenId>(16, 3));
  EXPECT_EQ(world.summary(pin(world, one, 1000)).pinned_tokens, 64);
  EXPECT_EQ(world.summary(pin(world, two, 1000)).pinned_tokens, 64) << "one block more";
  EXPECT_EQ(world.summary(pin(world, three, 1000)).pinned_tokens, 0) << "a sixth block";
  EXPECT_EQ(world.scheduler.pins().num_blocks(), 5);
  EXPECT_EQ(world.scheduler.pins().size(), 2);
}

TEST(SchedulerPins, UnpinReleasesOnesOwnOrAll) {
  World world(limits_of(40, 40));
  const RequestId one = pin(world, prompt_of(1, 64), CacheParams::kPinForever);
  pin(world, prompt_of(2, 32), CacheParams::kPinForever);
  pin(world, prompt_of(3, 16), CacheParams::kPinForever);
  world.clock.advance(std::chrono::hours(1000));
  world.scheduler.release_expired_pins();
  world.scheduler.unpin(777);
  EXPECT_EQ(world.scheduler.pins().num_blocks(), 7);
  world.scheduler.unpin(one);
  EXPECT_EQ(world.scheduler.pins().num_blocks(), 3);
  world.scheduler.unpin(0);
  EXPECT_EQ(world.blocks.num_available(), 40);
}

TEST(SchedulerPins, StayWhenTheCacheIsFlushed) {
  World world(limits_of(40, 40));
  pin(world, prompt_of(1, 64), 1000);
  ask_again(world, prompt_of(2, 64));
  world.scheduler.flush_prefix_cache();
  EXPECT_EQ(world.summary(ask_again(world, prompt_of(1, 64))).cached_tokens, 63);
  EXPECT_EQ(world.summary(ask_again(world, prompt_of(2, 64))).cached_tokens, 0);
}

TEST(SchedulerPins, GoWithContentThatAFailedStepMadeDoubtful) {
  World world(limits_of(40, 40));
  pin(world, prompt_of(1, 64), 1000);
  Request failing;
  failing.prompt = prompt_of(1, 64);
  failing.max_tokens = 9;
  world.submit(std::move(failing));
  world.fail_next();
  world.run_to_end();
  EXPECT_EQ(world.scheduler.pins().size(), 0);
  EXPECT_EQ(world.blocks.num_free(), 40);
}

TEST(SchedulerPins, GiveWayWhenTheFirstCannotStartOtherwiseTheOldestFirst) {
  for (const int depth : {1, 2}) {
    World world(limits_of(10, 10));
    pin(world, prompt_of(1, 64), CacheParams::kPinForever);
    pin(world, prompt_of(2, 32), CacheParams::kPinForever);
    const RequestId big = world.submit(125, 3);  // eight blocks, four are free
    world.run_to_end(depth);
    world.expect_as_alone();
    EXPECT_EQ(world.told(big).finish, FinishReason::kLength);
    EXPECT_EQ(world.scheduler.counts().num_pins_released, 1);
    EXPECT_EQ(world.scheduler.pins().num_blocks(), 2);
  }
}

TEST(SchedulerPins, DoNotGiveWayWhileThoseWhoRunMayEnd) {
  World world(limits_of(10, 10));
  pin(world, prompt_of(1, 64), CacheParams::kPinForever);
  const RequestId running = world.submit(60, 20);  // five blocks by its end
  world.step();
  const RequestId waiting = world.submit(60, 4);
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.scheduler.counts().num_pins_released, 0);
  EXPECT_GE(world.summary(waiting).first_scheduled, world.summary(running).end);
}

TEST(SchedulerPins, GiveWayToTheGrowthOfTheLastOneLeftNotToLength) {
  for (const int depth : {1, 2}) {
    World world(limits_of(6, 6));
    pin(world, prompt_of(1, 64), CacheParams::kPinForever);
    const RequestId one = world.submit(14, 60);
    const RequestId two = world.submit(14, 60);
    world.run_to_end(depth);
    world.expect_as_alone();  // with the whole pool for each
    EXPECT_EQ(world.told(one).outputs.size(), 60U);
    EXPECT_EQ(world.told(two).outputs.size(), 60U);
    EXPECT_EQ(world.scheduler.counts().num_pins_released, 1);
    EXPECT_GE(world.scheduler.counts().num_preemptions, 1) << "taking from others comes before";
  }
}

}  // namespace
}  // namespace folio
