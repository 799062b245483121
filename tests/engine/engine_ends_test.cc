// Ends that nobody's tokens decided: cancel, deadline, failure, drain, shutdown. After each nothing is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <stdexcept>

#include "tests/engine/reader.h"

namespace folio {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

bool is_beginning_of(const std::vector<TokenId>& ids, const GenerationRequest& request) {
  return ids == fake_outputs(request.prompt, static_cast<std::int64_t>(ids.size()), kVocab);
}

class EngineEndsTest : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(EngineEndsTest);

TEST_P(EngineEndsTest, CancelInMidStream) {
  Rig rig;
  Gate gate;
  rig.model.set_hook([&](const StepBatch& batch) {
    if (batch.context_len[0] == 20) gate.wait();
  });
  const GenerationRequest request = request_of(1, 9, 240);
  Reader reader;
  const RequestId id = rig.submit(request, reader);
  reader.wait_tokens(5);
  rig.engine->cancel(id);
  gate.open();
  reader.wait_end();
  EXPECT_EQ(reader.error(), ErrorCode::kCancelled);
  EXPECT_EQ(reader.output().finish, FinishReason::kCancelled);
  EXPECT_TRUE(is_beginning_of(reader.output().ids, request));
  EXPECT_EQ(reader.end().usage.output_tokens, static_cast<std::int64_t>(reader.output().ids.size()));
  EXPECT_TRUE(rig.idle());
  rig.engine->cancel(id);  // over
  rig.engine->cancel(12345);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, CancelIsWithinAStep) {
  Rig rig;
  std::atomic<int> num_steps = 0;
  Gate gate;
  std::promise<void> inside;
  rig.model.set_hook([&](const StepBatch&) {
    if (++num_steps != 3) return;
    inside.set_value();
    gate.wait();
  });
  Reader reader;
  const RequestId id = rig.submit(request_of(1, 9, 240), reader);
  inside.get_future().wait();
  rig.engine->cancel(id);
  gate.open();
  reader.wait_end();
  // At depth 2 the step behind may have been started, and that before not have been collected.
  EXPECT_GE(reader.output().ids.size(), 3U - static_cast<std::size_t>(Rig::depth - 1));
  EXPECT_LE(reader.output().ids.size(), 3U);
  EXPECT_LE(num_steps, 3 + Rig::depth - 1);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, CancelWhileQueued) {
  EngineOptions options;
  options.max_num_seqs = 1;
  Rig rig(options);
  Gate gate;
  rig.model.set_hook([&](const StepBatch&) { gate.wait(); });
  Reader running;
  Reader queued;
  rig.submit(request_of(1, 9, 200), running);
  const RequestId id = rig.submit(request_of(2, 9, 5), queued);
  rig.engine->cancel(id);
  gate.open();
  queued.wait_end();
  EXPECT_EQ(queued.error(), ErrorCode::kCancelled);
  EXPECT_TRUE(queued.output().ids.empty());
  running.wait_end();
  EXPECT_FALSE(running.end().error);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, CancelOfOneIndexLeavesTheOthers) {
  Rig rig;
  const GenerationRequest request = request_of(1, 9, 100, 2);
  Gate gate;
  rig.model.set_hook([&](const StepBatch& batch) {
    if (batch.context_len[0] == 20) gate.wait();
  });
  Reader reader(2);
  const RequestId id = rig.submit(request, reader);
  rig.engine->cancel(id, 1);
  gate.open();
  reader.wait_end();
  EXPECT_FALSE(reader.end().error);
  EXPECT_EQ(reader.output(0).finish, FinishReason::kLength);
  EXPECT_EQ(reader.output(0).ids.size(), 100U);
  EXPECT_EQ(reader.output(1).finish, FinishReason::kCancelled);
  EXPECT_LE(reader.output(1).ids.size(), 12U);  // the hook held the step of the twelfth
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, CancelOfOneIndexBeforeTheFirstStepLeavesTheOthers) {
  Rig rig;
  Gate gate;
  std::promise<void> inside;
  std::atomic<bool> first = true;
  rig.model.set_hook([&](const StepBatch&) {
    if (!first.exchange(false)) return;
    inside.set_value();
    gate.wait();
  });
  Reader before;
  rig.submit(request_of(2, 5, 5), before);
  inside.get_future().wait();
  Reader reader(2);
  const RequestId id = rig.submit(request_of(1, 9, 30, 2), reader);
  rig.engine->cancel(id, 0);
  gate.open();
  reader.wait_end();
  EXPECT_FALSE(reader.end().error);
  EXPECT_EQ(reader.output(0).finish, FinishReason::kCancelled);
  EXPECT_TRUE(reader.output(0).ids.empty());
  EXPECT_EQ(reader.output(1).ids.size(), 30U);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, ADeadlineBeforeTheFirstTokenIsAnError) {
  Rig rig;
  GenerationRequest request = request_of(1, 9, 50);
  request.deadline = rig.clock.now();
  Reader reader;
  rig.submit(request, reader);
  reader.wait_end();
  EXPECT_EQ(reader.error(), ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(reader.output().finish, FinishReason::kNone);
  EXPECT_EQ(reader.end().usage.output_tokens, 0);
  EXPECT_EQ(rig.engine->load().num_steps, 0) << "no work is spent on what is late already";
  EXPECT_TRUE(rig.idle());
}

class TickClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(milliseconds(ticks_.load())); }
  void advance(std::int64_t ms) { ticks_ += ms; }

 private:
  std::atomic<std::int64_t> ticks_ = 1000;
};

TEST_P(EngineEndsTest, ADeadlineAfterTheFirstTokenIsAReason) {
  FakeModel model(64, 4, 256, kVocab);
  const FakeTokenizer tokenizer(kVocab);
  TickClock clock;
  model.set_hook([&](const StepBatch&) { clock.advance(10); });
  Engine engine(model, tokenizer, clock, {});
  GenerationRequest request = request_of(2, 9, 200);
  request.deadline = clock.now() + milliseconds(95);
  Reader reader;
  ASSERT_TRUE(engine.submit(request, reader.stream()).ok());
  reader.wait_end();
  EXPECT_FALSE(reader.end().error);
  EXPECT_EQ(reader.output().finish, FinishReason::kDeadline);
  EXPECT_EQ(reader.output().ids.size(), 10U);  // the tenth step began in time
  EXPECT_TRUE(is_beginning_of(reader.output().ids, request));
  EXPECT_EQ(reader.end().timings.ttft_ms, 10);
  EXPECT_EQ(reader.end().timings.decode_ms, 90);
  EXPECT_DOUBLE_EQ(engine.load().mean_step.total_ms(), 10);
  EXPECT_EQ(engine.load().blocks_held, 0);
}

TEST_P(EngineEndsTest, AFailedStepEndsItsRequestsAndTheLoopLivesOn) {
  Rig rig;
  std::atomic<int> num_steps = 0;
  rig.model.set_hook([&](const StepBatch&) {
    if (++num_steps == 4) throw std::runtime_error("out of paper");
  });
  const GenerationRequest request = request_of(1, 9, 20, 2);
  Reader reader(2);
  rig.submit(request, reader);
  reader.wait_end();
  EXPECT_EQ(reader.error(), ErrorCode::kInternal);
  EXPECT_THAT(reader.end().error->message, HasSubstr("out of paper"));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(reader.output(i).finish, FinishReason::kError);
    EXPECT_EQ(reader.output(i).ids.size(), 3U);
  }
  EXPECT_TRUE(rig.idle());
  Reader next;
  rig.submit(request_of(2, 9, 20), next);
  next.wait_end();
  EXPECT_FALSE(next.end().error);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, TheQueueIsBoundedAndStartedRequestsAreNotInIt) {
  EngineOptions options;
  options.max_num_seqs = 2;
  options.max_queue = 3;
  Rig rig(options);
  Gate gate;
  std::promise<void> inside;
  std::atomic<bool> first = true;
  rig.model.set_hook([&](const StepBatch&) {
    if (!first.exchange(false)) return;
    inside.set_value();
    gate.wait();
  });
  std::vector<Reader> readers(4);
  rig.submit(request_of(0, 5, 5), readers[0]);
  inside.get_future().wait();  // it is started, and its step is under way
  for (int i = 1; i < 4; ++i) rig.submit(request_of(i, 5, 5), readers[static_cast<std::size_t>(i)]);
  const auto refused = rig.engine->submit(request_of(9, 5, 5), Reader().stream());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_THAT(refused.error().message, HasSubstr("3 requests wait"));
  gate.open();
  for (Reader& reader : readers) {
    reader.wait_end();
    EXPECT_FALSE(reader.end().error);
  }
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, DrainRefusesNewcomersAndFinishesTheRest) {
  Rig rig;
  Reader reader;
  rig.submit(request_of(1, 9, 100), reader);
  rig.engine->stop_accepting();
  const auto refused = rig.engine->submit(request_of(2, 9, 5), Reader().stream());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_TRUE(rig.engine->wait_idle(kNoDeadline));
  reader.wait_end();
  EXPECT_EQ(reader.output().ids.size(), 100U);
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, WaitIdleGivesUpAtItsDeadlineAndEndAllEndsWhatIsLeft) {
  EngineOptions options;
  options.max_num_seqs = 1;
  Rig rig(options);
  rig.model.set_hook([](const StepBatch&) { std::this_thread::sleep_for(milliseconds(5)); });
  Reader running;
  Reader queued;
  rig.submit(request_of(1, 9, 200), running);
  rig.submit(request_of(2, 9, 200), queued);
  running.wait_tokens(2);
  EXPECT_FALSE(rig.engine->wait_idle(std::chrono::steady_clock::now() + milliseconds(20)));
  rig.engine->end_all({ErrorCode::kUnavailable, "drained"});
  for (Reader* reader : {&running, &queued}) {
    reader->wait_end();
    EXPECT_EQ(reader->error(), ErrorCode::kUnavailable);
    EXPECT_EQ(reader->end().error->message, "drained");
    EXPECT_EQ(reader->output().finish, FinishReason::kError);
  }
  EXPECT_TRUE(rig.idle());
}

TEST_P(EngineEndsTest, TheDestructorEndsWhatIsLeft) {
  std::vector<Reader> readers(20);
  {
    Rig rig({.max_num_seqs = 4});
    rig.model.set_hook([](const StepBatch&) { std::this_thread::sleep_for(milliseconds(1)); });
    for (int i = 0; i < 20; ++i) rig.submit(request_of(i, 9, 240), readers[static_cast<std::size_t>(i)]);
    readers[0].wait_tokens(1);
  }
  for (Reader& reader : readers) {
    reader.wait_end();
    EXPECT_TRUE(reader.error() == ErrorCode::kNotFound || reader.error() == ErrorCode::kUnavailable);
  }
  EXPECT_EQ(readers.back().error(), ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace folio
