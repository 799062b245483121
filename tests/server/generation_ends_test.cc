// How a generation ends before its time: cancel, deadline, slow readers, full queues, drain. Also run under the thread
// sanitizer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/server/generation_fixture.h"

namespace folio {
namespace {

using namespace std::chrono_literals;
using test::GenerationTest;

TEST_F(GenerationTest, CancelWhileItWaitsForTheWorker) {
  tokenizer_.hold(true);
  const auto busy = start(greedy("a", 1));
  tokenizer_.wait_until_encoding();
  const auto waiting = start(greedy("b", 400));
  waiting->cancel();
  busy->cancel();
  tokenizer_.hold(false);
  EXPECT_EQ(waiting->wait()->code, ErrorCode::kCancelled);
  EXPECT_EQ(busy->wait()->code, ErrorCode::kCancelled);
  EXPECT_EQ(engine_.load().num_steps, 0);
}

TEST_F(GenerationTest, CancelWhileItRuns) {
  const auto call = start(greedy("a", 400));
  call->wait_for_tokens(3);
  call->cancel();
  const auto error = call->wait();
  // It may have ended by itself just before; then there is nothing to cancel.
  if (error) {
    EXPECT_EQ(error->code, ErrorCode::kCancelled);
    EXPECT_EQ(call->whole().outputs(0).finish_reason(), v1::FINISH_REASON_CANCELLED);
    EXPECT_EQ(call->whole().usage().output_tokens(), call->whole().outputs(0).tokens_size());
  }
}

TEST_F(GenerationTest, CancelWhileTheStepRunsEndsAfterIt) {
  model_.hold();
  const auto call = start(greedy("a", 400));
  model_.allow(3);
  call->wait_for_tokens(3);
  call->cancel();
  model_.allow(1);  // the step that was under way
  EXPECT_EQ(call->wait()->code, ErrorCode::kCancelled);
  EXPECT_LE(call->whole().outputs(0).tokens_size(), 4);
}

TEST_F(GenerationTest, ADeadlineBeforeTheFirstTokenIsAnError) {
  EXPECT_EQ(start(greedy("a", 4), clock_.now() - 1ms)->wait()->code, ErrorCode::kDeadlineExceeded);
  EXPECT_EQ(start(greedy("a", 4), clock_.now() + 9ms)->wait()->code, ErrorCode::kDeadlineExceeded);  // the margin
  EXPECT_EQ(engine_.load().num_steps, 0);
}

TEST_F(GenerationTest, ADeadlineAfterTheFirstTokenIsAnEnd) {
  model_.hold();
  v1::GenerateRequest request = greedy("a", 400);
  request.set_time_limit_ms(150);
  const auto call = start(request);
  model_.allow(2);
  EXPECT_EQ(call->wait_for_tokens(2), 2);
  std::this_thread::sleep_for(200ms);  // past the deadline, inside the third step
  model_.release();
  EXPECT_FALSE(call->wait());
  EXPECT_EQ(call->whole().outputs(0).finish_reason(), v1::FINISH_REASON_DEADLINE);
  EXPECT_GE(call->whole().outputs(0).tokens_size(), 2);
  EXPECT_TRUE(call->whole().has_usage());
}

// A02: a reader that sleeps costs the engine nothing and loses nothing.
TEST_F(GenerationTest, AReaderThatSleepsGetsAllOfIt) {
  const auto sleeper = start(greedy("a", 300), kNoDeadline, false);
  const auto other = start(greedy("a", 300));
  EXPECT_FALSE(other->wait());
  EXPECT_FALSE(sleeper->ended());
  EXPECT_TRUE(engine_.wait_idle(clock_.now() + 10s));
  sleeper->start_reading();
  EXPECT_FALSE(sleeper->wait());
  EXPECT_EQ(sleeper->whole().outputs(0).text(), other->whole().outputs(0).text());
}

TEST_F(GenerationTest, AFullQueueRefusesAtOnce) {
  model_.hold();
  std::vector<std::shared_ptr<test::TestCall>> calls;
  for (int i = 0; i < 40; ++i) calls.push_back(start(greedy("abc", 3)));
  while (generation_.num_waiting_inputs() > 0) std::this_thread::sleep_for(1ms);
  int refused = 0;
  model_.release();
  for (const auto& call : calls) {
    if (const auto error = call->wait()) {
      EXPECT_EQ(error->code, ErrorCode::kResourceExhausted);
      ++refused;
    } else {
      EXPECT_EQ(call->whole().outputs(0).text(), "def");
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 40);
}

TEST_F(GenerationTest, DrainEndsWhatStillRunsAsUnavailable) {
  model_.hold();
  const auto call = start(greedy("a", 400));
  model_.allow(2);
  call->wait_for_tokens(2);
  engine_.stop_accepting();
  EXPECT_FALSE(engine_.wait_idle(clock_.now() + 20ms));
  EXPECT_EQ(refusal(greedy("a", 1)).code, ErrorCode::kUnavailable);
  engine_.end_all({ErrorCode::kUnavailable, "the server is shutting down"});
  model_.release();
  EXPECT_EQ(call->wait()->code, ErrorCode::kUnavailable);
}

TEST_F(GenerationTest, ManyCallersAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 25; ++i) {
        const auto call = start(greedy("abcdef", 40));
        if ((i + t) % 3 == 0) call->cancel();
        const auto error = call->wait();
        EXPECT_EQ(error ? 40 : call->whole().outputs(0).tokens_size(), 40);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  // The last references may still be on their way out of the worker and the dispatcher.
  for (int i = 0; i < 1000 && generation_.num_live_calls() > 0; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(generation_.num_live_calls(), 0);
}

}  // namespace
}  // namespace folio
