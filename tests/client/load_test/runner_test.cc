// What is sent when, over a wire of known behaviour; threads meet here, so it runs under the thread sanitizer too.
#include "client/load_test/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "client/load_test/summary.h"
#include "tests/client/load_test/fake_transport.h"

namespace folio::client {
namespace {

using namespace std::chrono_literals;
using testing::FakeTransport;

struct Done {
  RunResult result;
  std::vector<RequestRecord> records;

  Summary summary(bool open_loop) const { return summarize(records, result, open_loop, {}, {}); }
  std::int64_t count(Outcome outcome) const {
    return std::count_if(records.begin(), records.end(), [&](const auto& r) { return r.outcome == outcome; });
  }
};

WorkloadOptions small() {
  WorkloadOptions options;
  options.prompt_tokens = Lengths(3);
  options.output_tokens = Lengths(5);
  return options;
}

Done run(const SendPlan& plan, FakeTransport& transport, const WorkloadOptions& options = small(),
         const std::function<void(Runner&, int num_ended)>& after_end = {}) {
  const Workload workload(options, {}, 1000, {});
  Done done;
  Runner* running = nullptr;
  Runner runner(plan, workload, transport,
                {[] {},
                 [&](RequestRecord record) {
                   done.records.push_back(std::move(record));
                   if (after_end) after_end(*running, static_cast<int>(done.records.size()));
                 }});
  running = &runner;
  done.result = runner.run();
  return done;
}

SendPlan closed(int concurrency, std::int64_t num_requests) {
  SendPlan plan;
  plan.concurrency = concurrency;
  plan.num_requests = num_requests;
  return plan;
}

SendPlan open(double rate, double duration_s, int limit = 0) {
  SendPlan plan;
  plan.arrivals.emplace(ArrivalOptions{ArrivalKind::kConstant, rate, 1, 0, 0});
  plan.duration_s = duration_s;
  plan.concurrency = limit;
  return plan;
}

TEST(Runner, AClosedLoopKeepsItsConcurrency) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(2, 5, 1); });
  const Done done = run(closed(4, 30), transport);
  EXPECT_EQ(done.count(Outcome::kOk), 30);
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& record : done.records) {
    changes.emplace_back(record.sent_s, 1);
    changes.emplace_back(record.end_s, -1);
    EXPECT_GE(record.sent_s, record.due_s);
    EXPECT_EQ(record.due_s, record.ready_s);
  }
  std::sort(changes.begin(), changes.end());
  int live = 0, most = 0;
  for (const auto& [at, change] : changes) most = std::max(most, live += change);
  EXPECT_EQ(most, 4);
}

TEST(Runner, ARampLetsCallersBeginOneAfterTheOther) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(1, 1000, 0); });
  SendPlan plan = closed(4, 4);
  plan.ramp_s = 0.4;
  const Done done = run(plan, transport);
  for (const RequestRecord& record : done.records) {
    EXPECT_GE(record.sent_s, 0.1 * static_cast<double>(record.number));
    EXPECT_NEAR(record.due_s, 0.1 * static_cast<double>(record.number), 1e-6);
  }
}

TEST(Runner, AnOpenLoopSendsWhateverTheServerDoes) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(1, 700, 0); });
  const Done done = run(open(50, 0.51), transport);
  EXPECT_EQ(done.records.size(), 26U);
  EXPECT_TRUE(done.result.timed_out);
  EXPECT_GE(done.result.sending_s, 0.51);  // the whole duration, though nothing was due after 0.5
  EXPECT_EQ(done.result.num_missed, 0);
  for (const RequestRecord& record : done.records) {
    EXPECT_NEAR(record.due_s, static_cast<double>(record.number) / 50, 1e-6);
    EXPECT_GE(record.ttft_ms(), 700);
    EXPECT_LT(record.sent_s, 0.65);  // before the first answer
  }
}

TEST(Runner, ATracesTimesAreKept) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(1, 1, 0); });
  SendPlan plan;
  plan.arrivals.emplace(std::vector<double>{0, 0.2, 0.2});
  plan.num_requests = 10;
  const Done done = run(plan, transport);
  ASSERT_EQ(done.records.size(), 3U);
  EXPECT_NEAR(done.records[2].due_s, 0.2, 1e-6);
}

// C04: a server that needs 48 ms, for 40 requests a second of which 4 may run at a time, freezes in the middle. What
// was due while all places were taken waits in the client, and that wait is part of its latency.
TEST(Runner, LatencyCountsFromWhenARequestWasDue) {
  std::atomic<FakeTransport*> frozen{nullptr};
  FakeTransport transport([&](int number, const RequestSpec&) {
    if (number == 30) frozen.load()->freeze(std::chrono::steady_clock::now() + 1200ms);
    return testing::answer(1, 40, 8);
  });
  frozen.store(&transport);
  const Done done = run(open(40, 4, 4), transport);
  const Summary summary = done.summary(true);
  EXPECT_EQ(done.records.size() + static_cast<std::size_t>(done.result.num_missed), 160U);
  EXPECT_EQ(done.result.num_missed, 0);
  const Figures due = summary.e2e_ms.figures(), sent = summary.e2e_from_sent_ms.figures();
  EXPECT_GT(due.p99, 1000);  // nearly the freeze
  std::int64_t num_slow = 0, num_slow_from_sent = 0;
  for (const RequestRecord& record : done.records) {
    if (record.e2e_ms() > 300) ++num_slow;
    if (record.e2e_ms() - record.send_delay_ms() > 300) ++num_slow_from_sent;
  }
  EXPECT_GT(num_slow, 40);
  EXPECT_LE(num_slow_from_sent, 8);  // a clock that starts with sending sees those under way at that moment, of 160
  EXPECT_LT(sent.p90, 300);
  EXPECT_GT(summary.send_delay_ms.percentile(95), 500);
  EXPECT_GT(summary.num_late, 30);
  EXPECT_THAT(summary.saturation(), ::testing::Each(::testing::Not(::testing::HasSubstr("sent requests late"))));
}

TEST(Runner, WhatIsNeverSentIsCounted) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(1, 400, 0); });
  const Done done = run(open(20, 1, 1), transport);
  EXPECT_EQ(done.records.size() + static_cast<std::size_t>(done.result.num_missed), 20U);
  EXPECT_GE(done.result.num_missed, 16);
  EXPECT_NEAR(done.summary(true).due_per_second.value_or(0), 20, 1);
}

TEST(Runner, StopCancelsWhatRunsAndIsTold) {
  FakeTransport transport(
      [](int number, const RequestSpec&) { return testing::answer(1, number < 3 ? 1 : 60'000, 0); });
  const auto start = std::chrono::steady_clock::now();
  const Done done = run(closed(2, 1000), transport, small(), [](Runner& runner, int num_ended) {
    if (num_ended == 3) runner.stop();
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  EXPECT_TRUE(done.result.stopped);
  EXPECT_EQ(done.count(Outcome::kOk), 3);
  EXPECT_GE(done.count(Outcome::kAborted), 1);
  EXPECT_LE(done.records.size(), 5U);
}

TEST(Runner, StopFromAnotherThreadInTheMidstOfIt) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(20, 1, 1); });
  const Workload workload(small(), {}, 1000, {});
  std::size_t num_records = 0;
  Runner runner(closed(8, 1'000'000), workload, transport, {[] {}, [&](const RequestRecord&) { ++num_records; }});
  std::thread stopper([&] {
    std::this_thread::sleep_for(200ms);
    runner.stop();
    runner.stop();
  });
  EXPECT_TRUE(runner.run().stopped);
  stopper.join();
  EXPECT_GT(num_records, 8U);
}

TEST(Runner, StopBeforeItBegins) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(1, 1, 0); });
  const Workload workload(small(), {}, 1000, {});
  Runner runner(closed(8, 10), workload, transport, {[] { ADD_FAILURE(); }, [](const RequestRecord&) {}});
  runner.stop();
  EXPECT_TRUE(runner.run().stopped);
}

TEST(Runner, TheAskedShareIsCancelledAndIsNoFailure) {
  FakeTransport transport([](int, const RequestSpec& spec) { return testing::answer(spec.max_tokens, 1, 2); });
  WorkloadOptions options = small();
  options.output_tokens = Lengths(20);
  options.cancel_fraction = 0.5;
  const Done done = run(closed(8, 200), transport, options);
  EXPECT_NEAR(static_cast<double>(done.count(Outcome::kCancelled)), 100, 30);
  EXPECT_EQ(done.count(Outcome::kCancelled) + done.count(Outcome::kOk), 200);
  EXPECT_EQ(done.summary(false).failed_share(), 0);
}

TEST(Runner, ADurationEndsSendingAndNotWhatRuns) {
  FakeTransport transport([](int, const RequestSpec&) { return testing::answer(1, 150, 0); });
  SendPlan plan;
  plan.concurrency = 2;
  plan.duration_s = 0.4;
  const Done done = run(plan, transport);
  EXPECT_EQ(done.count(Outcome::kOk), static_cast<std::int64_t>(done.records.size()));
  EXPECT_LE(done.records.size(), 6U);
  EXPECT_GE(done.records.size(), 2U);
  for (const RequestRecord& record : done.records) EXPECT_LT(record.due_s, 0.4);
  EXPECT_FALSE(done.result.stopped);
}

TEST(Runner, CountsThatCannotBeAreABadAnswerAndNoMore) {
  FakeTransport transport([](int number, const RequestSpec&) {
    auto parts = testing::answer(5, 1, 1);
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    StreamEnd& end = parts.back().end;
    if (number == 0) end.output_tokens = kMost;
    if (number == 1) end.output_tokens = -1;
    if (number == 2) end.prompt_tokens = std::numeric_limits<std::int64_t>::min();
    if (number == 3) parts[1].tokens = parts[2].tokens = kMost;
    return parts;
  });
  const Done done = run(closed(2, 6), transport);
  const Summary summary = done.summary(false);
  EXPECT_EQ(summary.num_ok, 2);
  EXPECT_EQ(summary.errors.at("bad answer"), 4);
  EXPECT_EQ(summary.output_tokens, 10);
}

}  // namespace
}  // namespace folio::client
