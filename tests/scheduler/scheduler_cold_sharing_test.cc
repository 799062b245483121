// Callers that come at once with one long prefix, which nobody has computed yet, compute it once.
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

constexpr std::int64_t kPrefix = 1024;
constexpr std::int64_t kTail = 16;
constexpr int kCallers = 32;

SchedulerLimits limits_of(std::int32_t max_num_seqs) {
  return {.block_size = 16,
          .num_blocks = 400,
          .max_context = 2000,
          .max_num_seqs = max_num_seqs,
          .max_batch_tokens = 256,
          .max_queue = 100};
}

// One output each: all tokens of slices are prompt tokens.
RequestId submit_caller(World& world, int i, std::int32_t priority = 0, const std::string& tenant = "") {
  Request request;
  request.prompt = joined(prompt_of(1, kPrefix), std::vector<TokenId>(kTail, static_cast<TokenId>(i)));
  request.max_tokens = 1;
  request.priority = priority;
  request.tenant = tenant;
  return world.submit(std::move(request));
}

void expect_all_ended(World& world) {
  world.expect_as_alone();
  for (const auto& [id, asked] : world.asked()) ASSERT_TRUE(asked.summary) << id;
}

TEST(SchedulerColdSharing, ThePrefixIsComputedOnce) {
  for (const std::int32_t max_num_seqs : {2, 4, 32}) {
    for (const int depth : {1, 2}) {
      World world(limits_of(max_num_seqs));
      for (int i = 0; i < kCallers; ++i) submit_caller(world, i);
      world.run_to_end(depth);
      expect_all_ended(world);
      EXPECT_EQ(world.met.slice_tokens, kPrefix + kCallers * kTail) << max_num_seqs << " depth " << depth;
      EXPECT_EQ(world.summary(1).cached_tokens, 0);
      EXPECT_EQ(world.summary(kCallers).cached_tokens, kPrefix);
    }
  }
}

TEST(SchedulerColdSharing, EqualPromptsComputeOneTokenMoreEach) {
  for (const int depth : {1, 2}) {
    World world(limits_of(32));
    for (int i = 0; i < kCallers; ++i) {
      Request request;
      request.prompt = prompt_of(1, kPrefix);
      request.max_tokens = 1;
      world.submit(std::move(request));
    }
    world.run_to_end(depth);
    expect_all_ended(world);
    EXPECT_EQ(world.met.slice_tokens, kPrefix + kCallers - 1);
    EXPECT_EQ(world.met.copies, kCallers - 1);
  }
}

TEST(SchedulerColdSharing, ItTakesNoLongerThanOnePrefillAndTheTails) {
  World world(limits_of(32));
  for (int i = 0; i < kCallers; ++i) submit_caller(world, i);
  world.run_to_end();
  EXPECT_LE(world.num_steps, (kPrefix + kCallers * kTail) / 256 + 2);
}

TEST(SchedulerColdSharing, OthersGoOnWhenTheFirstIsCancelledMidway) {
  for (const int depth : {1, 2}) {
    World world(limits_of(32));
    for (int i = 0; i < kCallers; ++i) submit_caller(world, i);
    world.step_at(depth);
    world.step_at(depth);
    world.scheduler.end(1, FinishReason::kCancelled);
    world.run_to_end(depth);
    expect_all_ended(world);
    // At depth 2 the slice in flight of the cancelled one is lost: at most a step's.
    const std::int64_t lost = world.met.slice_tokens - (kPrefix + (kCallers - 1) * kTail);
    EXPECT_GE(lost, 0);
    EXPECT_LE(lost, depth == 1 ? 0 : 256);
  }
}

TEST(SchedulerColdSharing, HigherPrioritiesWaitForTheLowerOneThatComputes) {
  for (const std::int32_t max_num_seqs : {1, 4, 32}) {
    World world(limits_of(max_num_seqs));
    submit_caller(world, 0, -5);
    world.step();
    world.submit(300, 1, -1);  // something between them
    for (int i = 1; i < kCallers; ++i) submit_caller(world, i, 1);
    world.run_to_end();
    expect_all_ended(world);
    EXPECT_EQ(world.met.slice_tokens, 300 + kPrefix + kCallers * kTail) << max_num_seqs;
    if (max_num_seqs == 1) continue;
    EXPECT_LE(world.told(kCallers + 1).times.at(0), world.told(2).times.at(0)) << "the computing one inherits";
  }
}

TEST(SchedulerColdSharing, WhoHasNothingInCommonDoesNotWait) {
  World world(limits_of(32));
  for (int i = 0; i < 8; ++i) submit_caller(world, i);
  const RequestId other = world.submit(10, 1);
  world.step();
  EXPECT_EQ(world.told(other).finish, FinishReason::kLength);
}

TEST(SchedulerColdSharing, TheOneThatComputesMayBePreemptedAndTheWaitingGoOn) {
  World world(limits_of(2));
  for (int i = 0; i < 6; ++i) submit_caller(world, i);
  world.step();
  for (int i = 0; i < 2; ++i) world.submit(400, 30, 2);  // they take both places
  world.run_to_end();
  expect_all_ended(world);
  EXPECT_EQ(world.summary(1).num_preemptions, 1);
  EXPECT_EQ(world.met.slice_tokens, 2 * (400 + 29) + kPrefix + 6 * kTail);
}

}  // namespace
}  // namespace folio
