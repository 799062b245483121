// Deadlines: who is refused, who goes first, and that the end is told in time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr SchedulerLimits kRoomy{.block_size = 16,
                                 .num_blocks = 400,
                                 .max_context = 4000,
                                 .max_num_seqs = 8,
                                 .max_batch_tokens = 128,
                                 .max_queue = 100};

// A step takes 20 ms and a row one more.
const auto kCost = linear_cost(20, 1, 0, 0, 0);

Request request_of(std::uint64_t seed, std::int64_t num_prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt = prompt_of(seed, num_prompt);
  request.max_tokens = max_tokens;
  return request;
}

// A world whose step-time model has seen prompts and outputs.
void teach(World& world) {
  world.step_cost = kCost;
  for (std::uint64_t i = 0; i < 8; ++i) world.submit(request_of(i + 50, 30 + 40 * static_cast<int>(i), 20));
  world.run_to_end();
}

TEST(SchedulerDeadline, TheEarliestGoesFirstInsideATenant) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 1;
  World world(limits);
  const auto submit = [&](const std::string& tenant, Duration time) {
    Request request = request_of(1, 5, 1);
    request.tenant = tenant;
    request.cache.bypass = true;
    if (time > Duration::zero()) request.deadline = world.clock.now() + time;
    return world.submit(std::move(request));
  };
  submit("a", Duration::zero());
  submit("a", seconds(5));
  submit("a", seconds(1));
  EXPECT_EQ(world.step(), "3:5");
  EXPECT_EQ(world.step(), "2:5");
  EXPECT_EQ(world.step(), "1:5");
  submit("a", Duration::zero());
  submit("b", seconds(1));
  EXPECT_EQ(world.step(), "5:5") << "the one tenant is as good as the other, so the deadline decides";
  EXPECT_EQ(world.step(), "4:5");
}

TEST(SchedulerDeadline, NobodyIsRefusedForItBeforeTwentySteps) {
  World world(kRoomy);
  world.step_cost = kCost;
  world.submit(request_of(1, 10, 100));
  for (int i = 0; i < StepTimeModel::kMinSamples; ++i) {
    Request hopeless = request_of(2, 3000, 5);
    hopeless.deadline = world.clock.now() + milliseconds(1);
    EXPECT_NE(world.submit(std::move(hopeless)), 0U) << i;
    world.step();
    while (!world.scheduler.empty() && world.num_steps <= i) world.step();
  }
  Request hopeless = request_of(2, 3000, 5);
  hopeless.deadline = world.clock.now() + milliseconds(1);
  EXPECT_EQ(world.submit(std::move(hopeless)), 0U);
}

// What was learnt while the machine was slow is not held against requests for ever: where nothing runs, no step would
// teach better.
TEST(SchedulerDeadline, AnIdleSchedulerTriesAgainWhatItRefused) {
  World world(kRoomy);
  teach(world);
  world.step_cost = [](const StepLoad& load) { return 20 * kCost(load); };
  world.submit(request_of(5, 100, 60));
  world.run_to_end();
  world.step_cost = kCost;
  int num_refused = 0;
  int num_made = 0;
  for (int i = 0; i < 40; ++i) {
    Request request = request_of(6, 1000, 5);
    request.cache.bypass = true;
    request.deadline = world.clock.now() + milliseconds(1500);
    const RequestId id = world.submit(std::move(request));
    num_refused += id == 0 ? 1 : 0;
    if (id == 0) continue;
    world.run_to_end();
    num_made += world.told(id).finish == FinishReason::kLength ? 1 : 0;
  }
  EXPECT_GT(num_refused, 0);
  EXPECT_LE(num_refused, 10);
  EXPECT_EQ(num_refused + num_made, 40);
}

TEST(SchedulerDeadline, WhoCannotStartInTimeIsRefusedWithTheNumbers) {
  for (const bool transport : {false, true}) {
    World world(kRoomy);
    teach(world);
    const auto submit = [&](std::int64_t num_prompt, Duration time, const std::string& tenant = "") {
      Request request = request_of(777, num_prompt, 5);
      request.tenant = tenant;
      (transport ? request.transport_deadline : request.deadline) = world.clock.now() + time;
      return world.submit(std::move(request));
    };
    // 1,280 tokens are ten steps of 148 ms.
    EXPECT_EQ(submit(1280, milliseconds(1200)), 0U);
    EXPECT_EQ(world.refusal->code, ErrorCode::kDeadlineExceeded);
    EXPECT_THAT(world.refusal->message,
                testing::MatchesRegex("the first token is expected in 1[45].. ms, after 0 prompt tokens of others; "
                                      "the time limit leaves 1(200|190) ms"));
    ASSERT_NE(submit(1280, milliseconds(1800)), 0U);
    // Behind it: as much again.
    EXPECT_EQ(submit(1279, milliseconds(2500)), 0U);
    EXPECT_THAT(world.refusal->message, testing::HasSubstr("after 1279 prompt tokens of others"))
        << "half of the steps";
    EXPECT_NE(submit(1279, milliseconds(1500)), 0U) << "an earlier deadline goes first";
    EXPECT_NE(submit(1278, milliseconds(4000), "another tenant"), 0U);
  }
}

TEST(SchedulerDeadline, WhatIsCachedCountsAsDone) {
  World world(kRoomy);
  teach(world);
  world.submit(request_of(777, 1280, 1));
  world.run_to_end();
  Request again = request_of(777, 1280, 1);
  again.deadline = world.clock.now() + milliseconds(100);
  EXPECT_NE(world.submit(again), 0U);
  again.deadline = world.clock.now() + milliseconds(100);
  again.cache.bypass = true;
  EXPECT_EQ(world.submit(again), 0U);
}

TEST(SchedulerDeadline, AShortOneIsTakenWhileALongPromptIsUnderWay) {
  World world(kRoomy);
  teach(world);
  world.submit(request_of(777, 3000, 5));
  world.step();
  Request request = request_of(778, 10, 1);
  request.deadline = world.clock.now() + milliseconds(160);
  const RequestId id = world.submit(std::move(request));
  ASSERT_NE(id, 0U) << "the long one leaves it half of a step";
  world.run_to_end();
  EXPECT_EQ(world.told(id).finish, FinishReason::kLength);
}

TEST(SchedulerDeadline, WhatIsCachedOfThoseAheadCountsAsDone) {
  World world(kRoomy);
  teach(world);
  const std::vector<TokenId> prefix = prompt_of(777, 1280);
  world.submit(request_of(777, 1280, 1));
  world.run_to_end();
  for (std::uint64_t i = 0; i < 7; ++i) {
    Request other = request_of(0, 1, 1);
    other.prompt = joined(prefix, prompt_of(i + 900, 20));
    other.priority = 1;
    world.submit(std::move(other));
  }
  Request request = request_of(778, 10, 1);
  request.deadline = world.clock.now() + milliseconds(400);
  const RequestId id = world.submit(std::move(request));
  ASSERT_NE(id, 0U);
  world.run_to_end();
  EXPECT_EQ(world.told(id).finish, FinishReason::kLength);
}

// The same histories with the time refused, and with all the time there is: no token came before the time refused. The
// others come first, so the longer time changes no order.
TEST(SchedulerDeadline, WhoIsRefusedWouldHaveBeenTooLate) {
  int num_refused = 0;
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    const auto first_token = [&](Duration time) -> std::optional<Duration> {
      World world(kRoomy);
      teach(world);
      const auto draw = [&](std::uint64_t i, std::uint64_t below) {
        return fake_hash(fake_hash(kFakeRoot + seed, 1), static_cast<TokenId>(i)) % below;
      };
      const std::uint64_t num_others = draw(0, 6);
      for (std::uint64_t i = 0; i < num_others; ++i) {
        Request other =
            request_of(seed * 10 + i, 1 + static_cast<std::int64_t>(draw(10 + i, i % 2 == 0 ? 50 : 1500)), 3);
        other.priority = 1;
        world.submit(std::move(other));
        for (std::uint64_t step = draw(20 + i, 4); step > 0 && !world.scheduler.empty(); --step) world.step();
      }
      Request request = request_of(seed + 5000, 1 + static_cast<std::int64_t>(draw(30, 900)), 1);
      const TimePoint now = world.clock.now();
      request.deadline = now + time;
      const RequestId id = world.submit(std::move(request));
      if (id == 0) return std::nullopt;
      world.run_to_end();
      return world.told(id).times.at(0) - now;
    };
    const auto served = first_token(std::chrono::hours(1));
    ASSERT_TRUE(served);
    // A tenth for what the model has not learnt to the last digit.
    EXPECT_TRUE(first_token(*served * 11 / 10)) << seed << ": " << to_ms(*served) << " ms";
    num_refused += first_token(milliseconds(5)) ? 0 : 1;
  }
  EXPECT_GT(num_refused, 100);
}

TEST(SchedulerDeadline, OneThatExpiresInTheQueueCostsNothing) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 1;
  World world(limits);
  world.submit(request_of(1, 10, 50));
  world.step();
  Request request = request_of(2, 100, 5);
  request.deadline = world.clock.now() + milliseconds(20);
  const RequestId late = world.submit(std::move(request));
  world.run_to_end();
  EXPECT_EQ(world.told(late).finish, FinishReason::kDeadline);
  EXPECT_EQ(world.summary(late).first_scheduled, TimePoint{});
  EXPECT_EQ(world.met.slice_tokens, 10 + 49);
}

// Steps of 21 ms: the own limit ends with the first step after it, the transport's with the last one whose end can
// still be told 10 ms before it.
TEST(SchedulerDeadline, TheTransportsIsEarlierByAStepAndTenMilliseconds) {
  for (int offset = 0; offset < 42; ++offset) {
    World world(kRoomy);
    teach(world);
    Request request = request_of(777, 20, 1000);
    TimePoint limit = world.clock.now() + milliseconds(400 + offset);
    request.transport_deadline = limit;
    const RequestId id = world.submit(request);
    request.transport_deadline = kNoDeadline;
    world.run_to_end();
    EXPECT_EQ(world.told(id).finish, FinishReason::kDeadline);
    EXPECT_LE(world.summary(id).end, limit - milliseconds(10));
    EXPECT_GT(world.summary(id).end, limit - milliseconds(10 + 21 + 2)) << "not a step earlier than need be";
    request.deadline = limit = world.clock.now() + milliseconds(400 + offset);
    const RequestId own = world.submit(request);
    world.run_to_end();
    EXPECT_GE(world.summary(own).end, limit);
    EXPECT_LE(world.summary(own).end, limit + milliseconds(22));
  }
}

TEST(SchedulerDeadline, ALongStepThatWasJustPlannedIsLookedAtToo) {
  World world(kRoomy);
  teach(world);
  Request request = request_of(777, 20, 1000);
  request.transport_deadline = world.clock.now() + milliseconds(200);
  const TimePoint limit = request.transport_deadline;
  const RequestId id = world.submit(std::move(request));
  while (world.clock.now() < limit - milliseconds(100)) world.step();
  const RequestId newcomer = world.submit(request_of(5, 127, 3));  // its step takes 148 ms
  world.run_to_end();
  EXPECT_EQ(world.told(id).finish, FinishReason::kDeadline);
  EXPECT_LE(world.summary(id).end, limit - milliseconds(10));
  EXPECT_EQ(world.told(newcomer).finish, FinishReason::kLength);
  world.expect_as_alone();
}

TEST(SchedulerDeadline, AtDepth2TheEndIsToldBeforeTheTransportsToo) {
  for (int offset = 0; offset < 42; ++offset) {
    World world(kRoomy);
    teach(world);
    Request request = request_of(777, 20, 1000);
    const TimePoint limit = world.clock.now() + milliseconds(400 + offset);
    request.transport_deadline = limit;
    const RequestId id = world.submit(std::move(request));
    world.run_to_end(2);
    EXPECT_EQ(world.told(id).finish, FinishReason::kDeadline);
    EXPECT_LE(world.summary(id).end, limit - milliseconds(8)) << offset;
    EXPECT_GT(world.summary(id).end, limit - milliseconds(10 + 3 * 21)) << offset;
  }
}

}  // namespace
}  // namespace folio
