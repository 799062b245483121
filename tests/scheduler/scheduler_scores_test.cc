// Log probabilities of a prompt: every position of it in exactly one plan, whatever the cache has, whoever is preempted
// and however many sequences there are; and prompts behind which nothing is sampled.
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

constexpr SchedulerLimits kRoomy{.block_size = 4,
                                 .num_blocks = 200,
                                 .max_context = 500,
                                 .max_num_seqs = 8,
                                 .max_batch_tokens = 16,
                                 .max_queue = 100};

Request scored(std::vector<TokenId> prompt, std::int64_t max_tokens, std::int32_t n = 1) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.n = n;
  request.sampling.num_prompt_logprobs = 0;
  return request;
}

Request plain(std::vector<TokenId> prompt, std::int64_t max_tokens) {
  Request request = scored(std::move(prompt), max_tokens);
  request.sampling.num_prompt_logprobs = -1;
  return request;
}

TEST(SchedulerScores, EachPositionButTheLastOnceInChunks) {
  for (const int depth : {1, 2}) {
    for (const std::int64_t length : {1, 2, 15, 16, 17, 50}) {
      for (const std::int32_t n : {1, 3}) {
        World world(kRoomy);
        const RequestId id = world.submit(scored(prompt_of(1, length), 5, n));
        world.run_to_end(depth);
        EXPECT_EQ(world.asked().at(id).num_scored, length - 1);
        EXPECT_EQ(world.met.scored, length - 1) << "n = " << n;
        world.expect_as_alone();
      }
    }
  }
}

TEST(SchedulerScores, ItFindsNothingInTheCacheAndFillsIt) {
  World world(kRoomy);
  const std::vector<TokenId> prompt = prompt_of(1, 41);
  const RequestId before = world.submit(plain(prompt, 3));
  world.run_to_end();
  const RequestId id = world.submit(scored(prompt, 3));
  world.run_to_end();
  EXPECT_EQ(world.summary(id).cached_tokens, 0);
  EXPECT_EQ(world.asked().at(id).num_scored, 40);
  World other(kRoomy);
  other.submit(scored(prompt, 3));
  other.run_to_end();
  const RequestId after = other.submit(plain(prompt, 3));
  other.run_to_end();
  EXPECT_EQ(other.summary(after).cached_tokens, 40);
  EXPECT_EQ(world.told(before).outputs, world.told(id).outputs);
}

TEST(SchedulerScores, ItWaitsForNobodyAndOthersWaitForIt) {
  World world(kRoomy);
  const std::vector<TokenId> prompt = prompt_of(1, 61);
  world.submit(plain(prompt, 3));
  world.step();
  const RequestId id = world.submit(scored(prompt, 3));
  world.step();
  EXPECT_GT(world.asked().at(id).num_scored, 0) << "what the first computes is of no use to it";
  const RequestId last = world.submit(plain(prompt, 3));
  world.run_to_end();
  EXPECT_EQ(world.summary(last).cached_tokens, 60);
  EXPECT_EQ(world.met.slice_tokens, 61 + 61 + 1 + 3 * 2);
}

// A higher priority takes its place in the middle of the prompt: what was scored is found again, and scored no more.
TEST(SchedulerScores, APreemptedPromptGoesOnWhereItWas) {
  for (const int depth : {1, 2}) {
    SchedulerLimits limits = kRoomy;
    limits.max_num_seqs = 1;
    World world(limits);
    const RequestId id = world.submit(scored(prompt_of(1, 60), 5));
    for (int i = 0; i < depth + 1; ++i) world.step_at(depth);
    const std::int64_t before = world.asked().at(id).num_scored;
    EXPECT_GT(before, 0);
    EXPECT_LT(before, 59);
    world.submit(10, 3, 1);
    world.run_to_end(depth);
    EXPECT_EQ(world.summary(id).num_preemptions, 1);
    EXPECT_EQ(world.asked().at(id).num_scored, 59);
    // What was scored is taken from the cache again, but for the step in flight.
    EXPECT_EQ(world.summary(id).recomputed_tokens, depth == 1 ? 0 : 16);
    world.expect_as_alone();
  }
}

TEST(SchedulerScores, WhatWasEvictedMeanwhileIsComputedAgainAndNotScoredAgain) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 1;
  World world(limits);
  const RequestId id = world.submit(scored(prompt_of(1, 60), 5));
  for (int i = 0; i < 2; ++i) world.step();
  world.submit(10, 3, 1);
  world.step();
  world.scheduler.flush_prefix_cache();
  world.run_to_end();
  EXPECT_EQ(world.summary(id).recomputed_tokens, 32);
  EXPECT_EQ(world.asked().at(id).num_scored, 59);
  EXPECT_EQ(world.met.computed_and_not_scored, 32 + 1) << "and the prompt's last position";
  world.expect_as_alone();
}

// The first of n computes the prompt; when it is cancelled there, the next one goes on from what it left.
TEST(SchedulerScores, ASiblingTakesOver) {
  for (const int depth : {1, 2}) {
    World world(kRoomy);
    const RequestId id = world.submit(scored(prompt_of(1, 60), 5, 3));
    for (int i = 0; i < 2; ++i) world.step_at(depth);
    world.scheduler.end(id, 0, FinishReason::kCancelled);
    world.run_to_end(depth);
    EXPECT_EQ(world.told(id, 0).finish, FinishReason::kCancelled);
    EXPECT_EQ(world.told(id, 2).outputs.size(), 5U);
    EXPECT_EQ(world.asked().at(id).num_scored, 59);
    world.expect_as_alone();
  }
}

TEST(SchedulerScores, ACancelledPromptHasGivenABeginning) {
  World world(kRoomy);
  const RequestId id = world.submit(scored(prompt_of(1, 60), 5));
  for (int i = 0; i < 2; ++i) world.step();
  world.scheduler.end(id, FinishReason::kCancelled);
  world.run_to_end();
  EXPECT_EQ(world.asked().at(id).num_scored, 32);
}

// Rows of logits count for the target: a step of 16 rows that are all scored takes far longer than 16 plain ones.
TEST(SchedulerScores, TheChunkIsSizedForItsRowsOfLogits) {
  SchedulerLimits limits = kRoomy;
  limits.num_blocks = 2000;
  limits.max_context = 4000;
  limits.max_batch_tokens = 256;
  limits.prefix_cache = false;
  limits.target_itl = std::chrono::milliseconds(20);
  World world(limits);
  world.step_cost = linear_cost(1, 0.05, 0, 0, 0.5);
  for (int i = 0; i < 4; ++i) world.submit(20, 2000);
  for (int i = 0; i < 4; ++i) {  // it sees steps with rows of both kinds
    world.submit(scored(prompt_of(static_cast<std::uint64_t>(50 + i), 12 + 6 * i), 3));
    world.submit(60 + 60 * i, 3);
    for (int j = 0; j < 40; ++j) world.step();
  }
  std::int64_t chunks[2] = {};
  for (const bool scores : {false, true}) {
    const std::vector<TokenId> prompt = prompt_of(scores ? 70 : 71, 600);
    const RequestId id = world.submit(scores ? scored(prompt, 2) : plain(prompt, 2));
    std::int64_t& chunk = chunks[scores ? 1 : 0];
    while (world.told(id).outputs.empty()) {
      const std::int64_t before = world.met.slice_tokens;
      const TimePoint start = world.clock.now();
      world.step();
      chunk = std::max(chunk, world.met.slice_tokens - before - 4);
      EXPECT_LT(world.clock.now() - start, std::chrono::milliseconds(24)) << (scores ? "scored" : "plain");
    }
  }
  EXPECT_GT(chunks[0], 200);
  EXPECT_LT(chunks[1], 40);
  EXPECT_GE(chunks[1], 20);
}

// ---- nothing to be sampled

TEST(SchedulerScores, APromptAloneIsComputedAndEnds) {
  for (const int depth : {1, 2}) {
    for (const bool scores : {false, true}) {
      for (const std::int64_t length : {1, 3, 4, 5, 16, 17, 40}) {
        for (const std::int32_t n : {1, 3}) {
          World world(kRoomy);
          Request request = scores ? scored(prompt_of(1, length), 0, n) : plain(prompt_of(1, length), 0);
          request.n = n;
          const RequestId id = world.submit(std::move(request));
          world.run_to_end(depth);
          for (const World::Told& told : world.asked().at(id).told) {
            EXPECT_TRUE(told.started);
            EXPECT_EQ(told.finish, FinishReason::kLength);
            EXPECT_TRUE(told.outputs.empty());
          }
          EXPECT_EQ(world.summary(id).output_tokens, 0);
          EXPECT_EQ(world.met.slice_tokens, length) << "once, and all of it";
          if (depth == 1) {
            EXPECT_EQ(world.last_load.logit_rows, scores ? (length - 1) % 16 : 0);
          }
          EXPECT_EQ(world.asked().at(id).num_scored, scores ? length - 1 : 0);
        }
      }
    }
  }
}

TEST(SchedulerScores, APromptAloneFillsTheCacheAndIsPinned) {
  SchedulerLimits limits = kRoomy;
  limits.max_pinned_blocks = 20;
  World world(limits);
  Request request = plain(prompt_of(1, 40), 0);
  request.cache.pin_ms = CacheParams::kPinForever;
  const RequestId id = world.submit(std::move(request));
  world.run_to_end();
  EXPECT_EQ(world.summary(id).pinned_tokens, 40) << "its last block too";
  const RequestId after = world.submit(plain(joined(prompt_of(1, 40), {1, 2, 3}), 2));
  world.run_to_end();
  EXPECT_EQ(world.summary(after).cached_tokens, 40);
}

TEST(SchedulerScores, APromptAloneMayFillThePool) {
  SchedulerLimits limits = kRoomy;
  limits.num_blocks = 10;
  World world(limits);
  const RequestId id = world.submit(scored(prompt_of(1, 40), 0));
  ASSERT_NE(id, 0U);
  world.run_to_end();
  EXPECT_EQ(world.told(id).finish, FinishReason::kLength);
  EXPECT_EQ(world.asked().at(id).num_scored, 39);
  EXPECT_EQ(world.submit(scored(prompt_of(2, 40), 1)), 0U);
}

}  // namespace
}  // namespace folio
