// Depth 2: a step is planned and started while the one before it computes. What a caller sees is what depth 1 gives,
// and nothing is left in flight when the engine sleeps. And a device that is lost.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <stdexcept>

#include "tests/engine/reader.h"

namespace folio {
namespace {

using testing::HasSubstr;

// The rig's model computes on a thread of its own.
struct DeepRig {
  explicit DeepRig(EngineOptions options = {}, std::int32_t num_blocks = 64) {
    Rig::depth = 2;
    rig = std::make_unique<Rig>(options, num_blocks);
    Rig::depth = 1;
  }
  Rig* operator->() const { return rig.get(); }
  std::unique_ptr<Rig> rig;
};

TEST(EngineDepth2, AStepIsStartedWhileOneIsInFlight) {
  DeepRig rig;
  const GenerationRequest request = request_of(1, 9, 40, 3);
  Reader reader(3);
  rig->submit(request, reader);
  reader.wait_end();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(reader.output(i).ids, fake_outputs(request.prompt, 40, kVocab));
  ASSERT_TRUE(rig->idle());
  EXPECT_EQ(rig->async->most_in_flight(), 2);
  EXPECT_EQ(rig->engine->load().num_steps, 40) << "no step was computed for nothing";
}

// The fake model checks that such a sample knows all tokens before it.
TEST(EngineDepth2, ASampleThatReadsItsHistoryWaitsForTheStepBefore) {
  for (const auto penalise :
       {+[](SamplingParams& p) { p.repetition_penalty = 1.2F; }, +[](SamplingParams& p) { p.presence_penalty = 0.5F; },
        +[](SamplingParams& p) { p.frequency_penalty = -0.5F; }}) {
    DeepRig rig({.max_batch_tokens = 16});
    GenerationRequest request = request_of(1, 9, 40);
    penalise(request.sampling);
    Reader reader;
    rig->submit(request, reader);
    reader.wait_end();
    EXPECT_EQ(reader.output().ids, fake_outputs(request.prompt, 40, kVocab));
    ASSERT_TRUE(rig->idle());
    EXPECT_EQ(rig->async->most_in_flight(), 1);
    // A bias and a mask read nothing; and its prompt's chunks are as good as anybody's.
    GenerationRequest free = request_of(2, 50, 40);
    free.sampling.logit_bias = {{1, 0.5F}};
    free.stopping.min_tokens = 20;
    Reader second;
    rig->submit(free, second);
    second.wait_end();
    ASSERT_TRUE(rig->idle());
    EXPECT_EQ(rig->async->most_in_flight(), 2);
  }
}

TEST(EngineDepth2, TheSliceInFlightOfAStoppedSequenceIsThrownAwayBeforeTheEngineIsIdle) {
  DeepRig rig;
  for (int number = 0; number < 20; ++number) {
    GenerationRequest request = request_of(number, 6, 60, 2);
    const std::vector<TokenId> ids = fake_outputs(request.prompt, 60, kVocab);
    request.stopping.stop_token_ids = {ids[static_cast<std::size_t>(number)]};
    const auto end = std::find(ids.begin(), ids.end(), ids[static_cast<std::size_t>(number)]) + 1;
    Reader reader(2);
    const std::int64_t before = rig->engine->load().output_tokens;
    rig->submit(request, reader);
    reader.wait_end();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(reader.output(i).ids, std::vector<TokenId>(ids.begin(), end));
    ASSERT_TRUE(rig->idle()) << "a block was held by a step in flight";
    EXPECT_EQ(rig->engine->load().output_tokens - before, 2 * (end - ids.begin()));
  }
  EXPECT_EQ(rig->async->most_in_flight(), 2);
}

// The step behind was planned on what the failed one would have given: its other requests go on.
TEST(EngineDepth2, AStepThatFailsWhenItIsCollectedEndsItsOwnRequestsOnly) {
  DeepRig rig;
  Gate gate;
  std::promise<void> first_started;
  std::atomic<int> num_started = 0;
  rig->model.set_hook([&](const StepBatch&) {
    if (num_started++ > 0) return;
    first_started.set_value();
    gate.wait();
  });
  rig->async->set_collect_hook([](int step) {
    if (step == 1) throw std::runtime_error("out of paper");
  });
  Reader failing;
  Reader other;
  rig->submit(request_of(1, 9, 20), failing);
  first_started.get_future().wait();
  const GenerationRequest request = request_of(2, 9, 20);
  rig->submit(request, other);  // for the next step: it is planned before the first is collected, or just after
  gate.open();
  failing.wait_end();
  other.wait_end();
  EXPECT_EQ(failing.error(), ErrorCode::kInternal);
  EXPECT_THAT(failing.end().error->message, HasSubstr("out of paper"));
  EXPECT_TRUE(failing.output().ids.empty());
  EXPECT_FALSE(other.end().error);
  EXPECT_EQ(other.output().ids, fake_outputs(request.prompt, 20, kVocab));
  EXPECT_TRUE(rig->idle());
}

// A model of depth 2 that is done when start() returns: every step is started before the one in front is collected.
struct EagerRig {
  EagerRig() { engine = std::make_unique<Engine>(model, tokenizer, clock, EngineOptions{.check_invariants = true}); }
  FakeModel model{64, 4, 256, kVocab, 2};
  FakeTokenizer tokenizer{kVocab};
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
};

TEST(EngineDepth2, AStepThatCannotBeStartedFailsAfterTheOneInFrontGaveItsTokens) {
  EagerRig rig;
  int num_started = 0;
  rig.model.set_hook([&](const StepBatch&) {
    if (++num_started == 4) throw std::runtime_error("out of paper");
  });
  const GenerationRequest request = request_of(1, 9, 20, 2);
  Reader reader(2);
  ASSERT_TRUE(rig.engine->submit(request, reader.stream()).ok());
  reader.wait_end();
  EXPECT_EQ(reader.error(), ErrorCode::kInternal);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reader.output(i).ids, fake_outputs(request.prompt, 3, kVocab));
  EXPECT_TRUE(rig.engine->wait_idle(rig.clock.now() + std::chrono::seconds(10)));
  EXPECT_EQ(rig.engine->load().blocks_held, 0);
  EXPECT_EQ(num_started, 4) << "nothing is started behind a step that failed";
  Reader next;
  ASSERT_TRUE(rig.engine->submit(request_of(2, 9, 20), next.stream()).ok());
  next.wait_end();
  EXPECT_FALSE(next.end().error);
}

// ---- a lost device

class LossObserver final : public EngineObserver {
 public:
  void on_device_lost(const std::string& what) override { losses.push_back(what); }
  std::vector<std::string> losses;
};

// All requests end, those of the step, those in the queue and those that come now.
void expect_all_end(Rig& rig, const std::function<void()>& let_it_happen, std::deque<Reader>& readers) {
  const auto observer = std::make_shared<LossObserver>();
  rig.engine->add_observer(observer);
  for (int i = 0; i < 8; ++i) rig.submit(request_of(i, 9, 100, 1 + i % 2), readers.emplace_back(1 + i % 2));
  let_it_happen();
  for (Reader& reader : readers) {
    reader.wait_end();
    EXPECT_EQ(reader.error(), ErrorCode::kUnavailable);
    EXPECT_THAT(reader.end().error->message, HasSubstr("the device was lost: it fell off the bus"));
  }
  const auto refused = rig.engine->submit(request_of(2, 9, 5), Reader().stream());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, HasSubstr("it fell off the bus"));
  EXPECT_TRUE(rig.idle());
  EXPECT_THAT(observer->losses, testing::ElementsAre("it fell off the bus"));
  const LoadSnapshot load = rig.engine->load();
  EXPECT_EQ(load.num_ended[static_cast<std::size_t>(Outcome::kShutDown)], 8);
}

class EngineLoss : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(EngineLoss);

TEST_P(EngineLoss, EndsEverythingAndNothingIsStartedAgain) {
  // These outlive the rig: a step that nobody waits for any more may still run.
  Gate gate;
  std::atomic<int> num_steps = 0;
  Rig rig({.max_num_seqs = 4});
  rig.model.set_hook([&](const StepBatch&) {
    gate.wait();
    if (++num_steps >= 3) throw DeviceLost("it fell off the bus");
  });
  std::deque<Reader> readers;
  expect_all_end(
      rig, [&] { gate.open(); }, readers);
  EXPECT_LE(num_steps, 3 + Rig::depth - 1);
  EXPECT_LE(readers.front().output().ids.size(), 2U);
}

TEST(EngineDepth2, ALossIsNoticedWhenAStepIsCollected) {
  Gate gate;  // outlives the rig, as above
  const DeepRig deep({.max_num_seqs = 4});
  Rig& rig = *deep.rig;
  rig.model.set_hook([&](const StepBatch&) { gate.wait(); });
  std::atomic<int> num_collected = 0;
  rig.async->set_collect_hook([&](int step) {
    num_collected = step;
    if (step == 3) throw DeviceLost("it fell off the bus");
  });
  std::deque<Reader> readers;
  expect_all_end(
      rig, [&] { gate.open(); }, readers);
  EXPECT_EQ(num_collected, 3) << "the step behind is given up, not waited for";
}

}  // namespace
}  // namespace folio
