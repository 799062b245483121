#include "server/front_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>

#include "server/dispatcher.h"

namespace folio {
namespace {

// A job that can wait for the test inside run().
class TestJob final : public FrontJob {
 public:
  explicit TestJob(std::shared_future<void> gate = {}) : gate_(std::move(gate)) {}

  bool abandoned() const override { return abandoned_.load(); }
  void run() override {
    started_.set_value();
    if (gate_.valid()) gate_.wait();
    ended_.set_value(std::nullopt);
  }
  void drop(const Error& error) override {
    retry_after_ms_ = error.retry_after_ms;
    ended_.set_value(error.code);
  }

  void abandon() { abandoned_.store(true); }
  void wait_started() { started_.get_future().wait(); }
  std::optional<ErrorCode> outcome() { return ended_.get_future().get(); }
  std::int32_t retry_after_ms() const { return retry_after_ms_; }  // REQUIRES that outcome() was asked for

 private:
  std::shared_future<void> gate_;
  std::atomic<bool> abandoned_{false};
  std::int32_t retry_after_ms_ = 0;
  std::promise<void> started_;
  std::promise<std::optional<ErrorCode>> ended_;
};

class FrontWorkerTest : public ::testing::Test {
 protected:
  // The worker is busy until open().
  void SetUp() override {
    worker_.submit(blocker_, 1);
    blocker_->wait_started();
  }
  void TearDown() override { open(); }
  void open() {
    if (!opened_) gate_.set_value();
    opened_ = true;
  }
  std::shared_ptr<TestJob> submit(std::size_t bytes) {
    auto job = std::make_shared<TestJob>();
    worker_.submit(job, bytes);
    return job;
  }

  std::promise<void> gate_;
  bool opened_ = false;
  std::shared_ptr<TestJob> blocker_ = std::make_shared<TestJob>(gate_.get_future().share());
  FrontWorker worker_{3, 100};
};

TEST_F(FrontWorkerTest, AFullInboxRefusesByCount) {
  const auto first = submit(1);
  submit(1);
  submit(1);
  const auto refused = submit(1);
  EXPECT_EQ(refused->outcome(), ErrorCode::kResourceExhausted);
  EXPECT_GT(refused->retry_after_ms(), 0);
  EXPECT_EQ(worker_.num_waiting(), 4U);
  open();
  EXPECT_EQ(first->outcome(), std::nullopt);
}

TEST_F(FrontWorkerTest, AFullInboxRefusesByBytesButTakesOneBigJob) {
  const auto big = submit(1000);
  EXPECT_EQ(submit(1)->outcome(), ErrorCode::kResourceExhausted);
  open();
  EXPECT_EQ(big->outcome(), std::nullopt);
}

TEST_F(FrontWorkerTest, AbandonedJobsMakeRoomAndAreNeverRun) {
  const auto gone = submit(40);
  submit(40);
  gone->abandon();
  const auto late = submit(40);
  EXPECT_EQ(gone->outcome(), ErrorCode::kCancelled);
  open();
  EXPECT_EQ(late->outcome(), std::nullopt);
}

TEST_F(FrontWorkerTest, AbandonedJobsAreDroppedWhenTheirTurnComes) {
  const auto gone = submit(1);
  gone->abandon();
  open();
  EXPECT_EQ(gone->outcome(), ErrorCode::kCancelled);
}

TEST(FrontWorkerEnd, WhatWaitsIsDroppedAsUnavailable) {
  std::promise<void> gate;
  const auto blocker = std::make_shared<TestJob>(gate.get_future().share());
  const auto waiting = std::make_shared<TestJob>();
  std::optional<FrontWorker> worker(std::in_place, 8, 100);
  worker->submit(blocker, 1);
  blocker->wait_started();
  worker->submit(waiting, 1);
  std::thread destroy([&] { worker.reset(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // lets the destructor begin; the result is the same
  gate.set_value();
  destroy.join();
  EXPECT_EQ(blocker->outcome(), std::nullopt);
}

class Counter final : public Receiver {
 public:
  void deliver() override { count_.fetch_add(1); }
  int count() const { return count_.load(); }

 private:
  std::atomic<int> count_{0};
};

TEST(Dispatcher, EveryNoteIsFollowedByADelivery) {
  std::vector<std::shared_ptr<Counter>> counters;
  for (int i = 0; i < 50; ++i) counters.push_back(std::make_shared<Counter>());
  {
    Dispatcher dispatcher;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int round = 0; round < 200; ++round) {
          for (const auto& counter : counters) dispatcher.note(counter);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }  // the destructor delivers what is noted
  for (const auto& counter : counters) {
    EXPECT_GE(counter->count(), 1);
    EXPECT_LE(counter->count(), 800);
    EXPECT_EQ(counter.use_count(), 1);
  }
}

}  // namespace
}  // namespace folio
