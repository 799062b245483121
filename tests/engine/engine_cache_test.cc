// The cache's commands and pins, and what is refused, while the engine runs and while it sleeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/engine/reader.h"

namespace folio {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

GenerationRequest pinned(int number, std::int64_t num_prompt_tokens, std::int64_t pin_ms) {
  GenerationRequest request = request_of(number, num_prompt_tokens, 3);
  request.cache.pin_ms = pin_ms;
  return request;
}

StreamEnd run(Rig& rig, const GenerationRequest& request) {
  Reader reader(request.n);
  rig.submit(request, reader);
  reader.wait_end();
  for (std::int32_t i = 0; i < request.n; ++i) {
    EXPECT_EQ(reader.output(i).ids, fake_outputs(request.prompt, request.stopping.max_tokens, kVocab));
  }
  return reader.end();
}

// What the engine thread does when nobody runs is seen a moment later.
template <class Fn>
bool comes_true(Rig& rig, Fn holds) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!holds(rig.engine->load())) {
    if (std::chrono::steady_clock::now() > give_up) return false;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return true;
}

class EngineCacheTest : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(EngineCacheTest);

TEST_P(EngineCacheTest, APinExpiresWhileTheEngineSleeps) {
  Rig rig;
  EXPECT_EQ(run(rig, pinned(1, 18, 150)).usage.pinned_tokens, 16);
  LoadSnapshot load = rig.engine->load();
  EXPECT_EQ(load.num_pins, 1);
  EXPECT_EQ(load.blocks_pinned, 4);
  EXPECT_EQ(load.blocks_held, 4);
  EXPECT_EQ(load.blocks_unaccounted, 0);
  rig.engine->flush_prefix_cache();
  EXPECT_TRUE(comes_true(rig, [](const LoadSnapshot& l) { return l.blocks_cached == 0; }));
  EXPECT_TRUE(comes_true(rig, [](const LoadSnapshot& l) { return l.num_pins == 0; }));
  load = rig.engine->load();
  EXPECT_EQ(load.blocks_pinned, 0);
  EXPECT_EQ(load.blocks_held, 0);
  EXPECT_EQ(load.blocks_cached, 4) << "the flush left the pinned ones, which are cached from now on";
  EXPECT_EQ(load.num_pins_released, 0) << "nobody needed their blocks";
}

TEST_P(EngineCacheTest, APinThatLastsLongIsNotOverSoon) {
  Rig rig;
  for (const std::int64_t pin_ms :
       {std::int64_t{1} << 32, std::int64_t{9'000'000'000'000}, std::int64_t{1} << 44, CacheParams::kPinForever}) {
    run(rig, pinned(1, 18, pin_ms));
    run(rig, request_of(2, 5, 3));  // a schedule releases what expired
    EXPECT_EQ(rig.engine->load().num_pins, 1) << pin_ms;
    rig.engine->unpin(0);
    EXPECT_TRUE(comes_true(rig, [](const LoadSnapshot& l) { return l.num_pins == 0; }));
  }
}

TEST_P(EngineCacheTest, UnpinIsForTheRequestThatAskedOrForAll) {
  Rig rig;
  Reader reader;
  const RequestId first = rig.submit(pinned(1, 18, CacheParams::kPinForever), reader);
  reader.wait_end();
  run(rig, pinned(2, 18, CacheParams::kPinForever));
  run(rig, pinned(3, 18, CacheParams::kPinForever));
  EXPECT_EQ(rig.engine->load().num_pins, 3);
  rig.engine->unpin(first);
  EXPECT_TRUE(comes_true(rig, [](const LoadSnapshot& l) { return l.num_pins == 2 && l.blocks_held == 8; }));
  rig.engine->unpin(first);
  rig.engine->unpin(12345);
  run(rig, request_of(4, 5, 3));
  rig.engine->unpin(~RequestId{0});  // no id is another command
  EXPECT_GT(run(rig, request_of(4, 5, 3)).usage.cached_tokens, 0);
  EXPECT_EQ(rig.engine->load().num_pins, 2);
  rig.engine->unpin(0);
  EXPECT_TRUE(comes_true(rig, [](const LoadSnapshot& l) { return l.num_pins == 0 && l.blocks_held == 0; }));
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineCacheTest, AFlushInMidStreamIsSeenByTheNextOnly) {
  Rig rig;
  const GenerationRequest request = request_of(1, 18, 20);
  std::atomic<bool> flushed = false;
  rig.model.set_hook([&](const StepBatch& batch) {
    if (batch.context_len[0] != 30 || flushed.exchange(true)) return;
    rig.engine->flush_prefix_cache();
    rig.engine->unpin(0);
  });
  EXPECT_EQ(run(rig, request).usage.cached_tokens, 0);
  EXPECT_TRUE(flushed);
  EXPECT_EQ(run(rig, request).usage.cached_tokens, 0) << "what hung under forgotten content was found";
  EXPECT_EQ(run(rig, request).usage.cached_tokens, 17);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineCacheTest, APinGivesWayToARequestThatNeedsItsBlocks) {
  EngineOptions options;
  options.pin_quota_percent = 100;
  Rig rig(options, 8, 4, 256);
  EXPECT_EQ(run(rig, pinned(1, 18, CacheParams::kPinForever)).usage.pinned_tokens, 16);
  EXPECT_EQ(run(rig, request_of(2, 30, 2)).usage.output_tokens, 2);
  EXPECT_EQ(rig.engine->load().num_pins, 0);
  EXPECT_EQ(rig.engine->load().num_pins_released, 1);
  EXPECT_TRUE(rig.idle());
}

// An index that ends before the request's first step does not say, for the others, that nothing was cached.
TEST_P(EngineCacheTest, WhatWasCachedIsToldOnceAndRightly) {
  Rig rig({.max_num_seqs = 2});
  run(rig, request_of(1, 18, 3));
  Gate gate;
  rig.model.set_hook([&](const StepBatch&) { gate.wait(); });
  Reader before(2);
  rig.submit(request_of(2, 5, 40, 2), before);
  Reader reader(2);
  const RequestId id = rig.submit(request_of(1, 18, 3, 2), reader);
  rig.engine->cancel(id, 0);
  gate.open();
  reader.wait_end();
  before.wait_end();
  EXPECT_EQ(reader.output(0).finish, FinishReason::kCancelled);
  EXPECT_EQ(reader.output(1).finish, FinishReason::kLength);
  EXPECT_EQ(reader.end().usage.cached_tokens, 17);
  EXPECT_EQ(reader.prompt()->cached_tokens, 17);
  EXPECT_TRUE(rig.idle());
}

class TickClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(milliseconds(ticks_.load())); }
  void advance(std::int64_t ms) { ticks_ += ms; }

 private:
  std::atomic<std::int64_t> ticks_ = 1000;
};

// Steps of 50 ms.
struct SlowRig {
  explicit SlowRig(EngineOptions options) {
    model.set_hook([this](const StepBatch&) {
      clock.advance(50);
      if (gate) gate->wait();
    });
    options.check_invariants = true;
    engine = std::make_unique<Engine>(model, tokenizer, clock, options);
  }
  void learn() {
    Reader reader;
    ASSERT_TRUE(engine->submit(request_of(1, 5, 40), reader.stream()).ok());
    reader.wait_end();
  }

  FakeModel model{64, 4, 256, kVocab};
  FakeTokenizer tokenizer{kVocab};
  TickClock clock;
  Gate* gate = nullptr;
  std::unique_ptr<Engine> engine;
};

TEST_P(EngineCacheTest, WhatCannotBeInTimeIsRefusedWithoutAStepAndLeavesNothing) {
  SlowRig rig({.max_queue = 1});
  for (int i = 0; i < 5; ++i) {
    rig.learn();  // else the second in a row would be let in, to learn
    const std::int64_t num_steps = rig.engine->load().num_steps;
    GenerationRequest late = request_of(2, 20, 5, 2);
    late.deadline = rig.clock.now() + milliseconds(10);
    Reader reader(2);
    ASSERT_TRUE(rig.engine->submit(late, reader.stream()).ok());
    reader.wait_end();
    EXPECT_EQ(reader.error(), ErrorCode::kDeadlineExceeded);
    ASSERT_TRUE(reader.end().error);
    EXPECT_THAT(reader.end().error->message, HasSubstr("the time limit leaves 10 ms"));
    EXPECT_EQ(reader.end().usage.prompt_tokens, 20);
    EXPECT_EQ(reader.end().usage.output_tokens, 0);
    EXPECT_FALSE(reader.prompt());
    ASSERT_TRUE(rig.engine->wait_idle(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
    EXPECT_EQ(rig.engine->load().num_steps, num_steps);
  }
  EXPECT_EQ(rig.engine->load().num_waiting, 0);
  GenerationRequest in_time = request_of(2, 20, 1);
  in_time.deadline = rig.clock.now() + milliseconds(200);
  Reader reader;
  ASSERT_TRUE(rig.engine->submit(in_time, reader.stream()).ok());
  reader.wait_end();
  EXPECT_FALSE(reader.end().error);
}

TEST_P(EngineCacheTest, AFullQueueSaysWhenToTryAgain) {
  SlowRig rig({.max_num_seqs = 1, .max_queue = 8});
  rig.learn();
  Gate gate;
  Reader readers[9];
  rig.gate = &gate;
  ASSERT_TRUE(rig.engine->submit(request_of(0, 5, 30), readers[0].stream()).ok());
  while (rig.engine->load().num_running == 0) std::this_thread::yield();  // its step is under way
  std::size_t num_taken = 1;
  std::int32_t retry_after_ms = -1;
  for (int i = 1; retry_after_ms < 0; ++i) {
    Reader refused;
    const bool has_room = num_taken < 9;
    const auto id = rig.engine->submit(request_of(i, 100, 2), (has_room ? readers[num_taken] : refused).stream());
    if (id.ok()) ++num_taken;
    if (!id.ok()) retry_after_ms = id.error().retry_after_ms;
  }
  EXPECT_GE(retry_after_ms, 100);
  EXPECT_LE(retry_after_ms, 60'000);
  gate.open();
  for (std::size_t i = 0; i < num_taken; ++i) readers[i].wait_end();
}

}  // namespace
}  // namespace folio
