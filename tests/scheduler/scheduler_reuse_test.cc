// What is in the prefix cache is not computed again, and what a running sequence computes is waited for.
#include <gtest/gtest.h>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

constexpr SchedulerLimits kRoomy{.block_size = 16,
                                 .num_blocks = 400,
                                 .max_context = 2000,
                                 .max_num_seqs = 8,
                                 .max_batch_tokens = 128,
                                 .max_queue = 100};

// Distinct for distinct `first`, from the first token on.
std::vector<TokenId> tail(TokenId first, std::size_t num_tokens) {
  return std::vector<TokenId>(num_tokens, first);
}

Request request_of(std::vector<TokenId> prompt, std::int64_t max_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

RequestId run_alone_in(World& world, Request request) {
  const RequestId id = world.submit(std::move(request));
  world.run_to_end();
  world.expect_as_alone();
  return id;
}

TEST(SchedulerReuse, WholeBlocksOfAPrefixAreSharedAndTheRestIsComputed) {
  World world(kRoomy);
  run_alone_in(world, request_of(joined(prompt_of(1, 64), tail(1, 10)), 3));
  const RequestId second = world.submit(request_of(joined(prompt_of(1, 64), tail(2, 10)), 3));
  EXPECT_EQ(world.step(), "2:10");
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(second).cached_tokens, 64);
  EXPECT_EQ(world.summary(second).recomputed_tokens, 0);
  EXPECT_EQ(world.scheduler.counts().cached_tokens, 64);
  EXPECT_EQ(world.scheduler.counts().prompt_tokens, 84);
  EXPECT_EQ(world.met.copies, 0);
}

TEST(SchedulerReuse, OfAPromptThatIsAllCachedTheLastTokenIsComputedAloneInACopy) {
  World world(kRoomy);
  run_alone_in(world, request_of(prompt_of(1, 64), 3));
  const RequestId second = world.submit(request_of(prompt_of(1, 64), 3));
  EXPECT_EQ(world.step(), "2:1");
  EXPECT_EQ(world.met.copies, 1);
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(second).cached_tokens, 63);
}

TEST(SchedulerReuse, APromptThatEndsInsideABlockIsFoundInTheBlockThatOutputsFilled) {
  World world(kRoomy);
  run_alone_in(world, request_of(prompt_of(1, 70), 20));
  const RequestId again = run_alone_in(world, request_of(prompt_of(1, 70), 20));
  EXPECT_EQ(world.summary(again).cached_tokens, 69);
  World brief(kRoomy);
  run_alone_in(brief, request_of(prompt_of(1, 70), 5));  // its last block was never full
  const RequestId after_brief = run_alone_in(brief, request_of(prompt_of(1, 70), 5));
  EXPECT_EQ(brief.summary(after_brief).cached_tokens, 64);
}

TEST(SchedulerReuse, AConversationsNextTurnFindsPromptAndOutputs) {
  World world(kRoomy);
  const RequestId turn = run_alone_in(world, request_of(prompt_of(1, 40), 30));
  std::vector<TokenId> next = joined(joined(prompt_of(1, 40), world.told(turn).outputs), tail(5, 7));
  const RequestId second = run_alone_in(world, request_of(std::move(next), 4));
  EXPECT_EQ(world.summary(second).cached_tokens, 64);  // 69 are computed, of which the last 5 are in no full block
}

TEST(SchedulerReuse, APartlyEqualBlockIsReusedToTheToken) {
  for (std::int64_t common = 1; common <= 64; ++common) {
    World world(kRoomy);
    const std::vector<TokenId> first = prompt_of(1, 64);
    run_alone_in(world, request_of(first, 1));
    std::vector<TokenId> second(first.begin(), first.begin() + common);
    const TokenId other = common < 64 ? (first[static_cast<std::size_t>(common)] + 1) % kFakeVocab : 0;
    const RequestId id = run_alone_in(world, request_of(joined(second, tail(other, 9)), 5));
    EXPECT_EQ(world.summary(id).cached_tokens, common);
    EXPECT_EQ(world.met.copies, common % 16 == 0 ? 0 : 1);
  }
}

TEST(SchedulerReuse, ACopysSourceThatWouldCostTheLastBlockIsDoneWithout) {
  SchedulerLimits limits = kRoomy;
  limits.num_blocks = 5;
  World world(limits);
  run_alone_in(world, request_of(prompt_of(1, 32), 1));
  std::vector<TokenId> second = prompt_of(1, 32);
  second.resize(20);
  // Five blocks: the shared one, and four of its own; the second cached one has to go.
  const RequestId id = run_alone_in(world, request_of(joined(second, tail(1, 59)), 1));
  EXPECT_EQ(world.summary(id).cached_tokens, 16);
  EXPECT_EQ(world.met.copies, 0);
}

TEST(SchedulerReuse, WhoIsReplacedMayHoldTheSourceOfTheCopy) {
  SchedulerLimits limits = kRoomy;
  limits.num_blocks = 4;
  World world(limits);
  const RequestId low = world.submit(request_of(prompt_of(1, 40), 20));  // 3 blocks
  world.step();
  world.step();
  Request above = request_of(joined(prompt_of(1, 20), tail(1, 40)), 2);  // 4 blocks, the first of them shared
  above.priority = 1;
  const RequestId high = world.submit(std::move(above));
  EXPECT_EQ(world.step(), "2:44") << "no room is left for the copy's source";
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(high).num_preemptions, 0);
  EXPECT_EQ(world.summary(low).num_preemptions, 1);
}

TEST(SchedulerReuse, AfterAPreemptionOnlyTheUnsealedTailIsComputedAgain) {
  SchedulerLimits limits = kRoomy;
  limits.max_num_seqs = 1;
  World world(limits);
  const RequestId low = world.submit(40, 20);
  while (world.told(low).outputs.size() < 5) world.step();  // 44 computed: two blocks and 12
  const RequestId high = world.submit(30, 3, 1);
  world.run_until(high);
  EXPECT_EQ(world.step(), "1:13");
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(low).num_preemptions, 1);
  EXPECT_EQ(world.summary(low).recomputed_tokens, 12);
  EXPECT_EQ(world.summary(low).cached_tokens, 0) << "of the prompt, at its first start";
}

TEST(SchedulerReuse, AfterAPreemptionWhatWasEvictedIsComputedAgainTailFirst) {
  SchedulerLimits limits = kRoomy;
  limits.num_blocks = 6;
  World world(limits);
  const RequestId low = world.submit(40, 20);
  while (world.told(low).outputs.size() < 5) world.step();
  const RequestId high =
      world.submit(78, 2, 1);  // five blocks: three free, the unsealed one, and the second sealed one
  world.run_until(high);
  EXPECT_EQ(world.step(), "1:29");
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(low).recomputed_tokens, 28);
}

TEST(SchedulerReuse, BypassNeitherReadsNorFills) {
  World world(kRoomy);
  Request bypass = request_of(prompt_of(1, 64), 3);
  bypass.cache.bypass = true;
  run_alone_in(world, bypass);
  EXPECT_EQ(world.blocks.num_cached(), 0);
  const RequestId normal = run_alone_in(world, request_of(prompt_of(1, 64), 3));
  EXPECT_EQ(world.summary(normal).cached_tokens, 0);
  EXPECT_EQ(world.blocks.num_cached(), 4);
  const RequestId again = run_alone_in(world, bypass);
  EXPECT_EQ(world.summary(again).cached_tokens, 0);
  EXPECT_EQ(world.blocks.num_cached(), 4);
}

TEST(SchedulerReuse, SaltsAreSeparate) {
  World world(kRoomy);
  for (const char* salt : {"", "a", "b"}) {
    Request request = request_of(prompt_of(1, 64), 3);
    request.cache.salt = salt;
    const RequestId first = run_alone_in(world, request);
    const RequestId second = run_alone_in(world, request);
    EXPECT_EQ(world.summary(first).cached_tokens, 0) << salt;
    EXPECT_EQ(world.summary(second).cached_tokens, 63) << salt;
  }
}

TEST(SchedulerReuse, WithoutThePrefixCacheNobodySharesButAResumedSequenceFindsItsOwn) {
  SchedulerLimits limits = kRoomy;
  limits.prefix_cache = false;
  limits.max_num_seqs = 1;
  World world(limits);
  run_alone_in(world, request_of(prompt_of(1, 64), 3));
  EXPECT_EQ(world.blocks.num_free(), limits.num_blocks);
  const RequestId again = world.submit(request_of(prompt_of(1, 64), 20));
  while (world.told(again).outputs.size() < 5) world.step();
  world.submit(30, 3, 1);
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(again).cached_tokens, 0);
  EXPECT_EQ(world.summary(again).num_preemptions, 1);
  EXPECT_EQ(world.summary(again).recomputed_tokens, 4);  // 68 were computed
}

TEST(SchedulerReuse, AFlushForgetsAllAndDisturbsNobody) {
  World world(kRoomy);
  run_alone_in(world, request_of(prompt_of(1, 64), 3));
  const RequestId running = world.submit(request_of(prompt_of(1, 64), 30));
  world.step();
  world.scheduler.flush_prefix_cache();
  EXPECT_EQ(world.blocks.num_cached(), 0);
  const RequestId after = world.submit(request_of(prompt_of(1, 64), 30));
  world.run_to_end();
  world.expect_as_alone();
  EXPECT_EQ(world.summary(running).cached_tokens, 63);
  EXPECT_EQ(world.summary(after).cached_tokens, 0);
}

TEST(SchedulerReuse, WhatAFailedStepMayHaveWrittenIsFoundByNobody) {
  World world(kRoomy);
  world.submit(request_of(prompt_of(1, 100), 30));
  world.step();
  world.fail_next();
  world.step();
  EXPECT_EQ(world.told(1).finish, FinishReason::kError);
  EXPECT_EQ(world.blocks.num_cached(), 0);
  const RequestId after = run_alone_in(world, request_of(prompt_of(1, 100), 3));
  EXPECT_EQ(world.summary(after).cached_tokens, 0);
}

}  // namespace
}  // namespace folio
