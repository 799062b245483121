// A server without a network for tests of its metrics: a fake model whose steps take ten milliseconds of a clock that
// stands still otherwise.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "server/metrics.h"
#include "tests/server/byte_tokenizer.h"
#include "tests/server/exposition.h"
#include "tests/server/generation_fixture.h"
#include "tests/support/fake_model/fake_model.h"

namespace folio::test {

class StillClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(std::chrono::nanoseconds(ns_.load())); }
  void advance(Duration d) { ns_ += d.count(); }

 private:
  std::atomic<std::int64_t> ns_ = 1'000'000'000'000;
};

using Counts = std::map<std::string, double>;

// finished_reason -> requests, refusal reason -> requests; those of none are left out.
inline Counts nonzero(const Exposition& seen, const std::string& name, const std::string& label) {
  Counts out;
  for (const auto& [sample, value] : seen.families().at(name).samples) {
    if (value != 0) out[sample.second.at(label)] = value;
  }
  return out;
}
inline Counts ends(const Exposition& seen) {
  return nonzero(seen, "folio_request_success_total", "finished_reason");
}
inline Counts refusals(const Exposition& seen) {
  return nonzero(seen, "folio_admission_rejections_total", "reason");
}

class MetricsTest : public ::testing::Test {
 protected:
  static constexpr Duration kStepTime = std::chrono::milliseconds(10);

  void SetUp() override {
    options_.max_num_seqs = 4;
    options_.max_batch_tokens = 64;
    options_.max_queue = 4;
    options_.check_invariants = true;
    metrics_options_.model_name = "tiny";
    metrics_options_.block_size = 4;
    metrics_options_.kv_dtype = "f16";
  }
  // After the test chose its options.
  void serve() {
    model_ = std::make_unique<FakeModel>(num_blocks_, 4, 256, kVocabSize);
    model_->set_hook([this](const StepBatch&) { step(); });
    engine_ = std::make_unique<Engine>(*model_, tokenizer_, clock_, options_);
    GenerationOptions options;
    options.model_name = "tiny";
    options.max_num_seqs = 8;
    options.max_waiting_inputs = 64;
    generation_ = std::make_unique<Generation>(*engine_, tokenizer_, chat_template_, clock_, options);
    metrics_ = std::make_unique<Metrics>(*engine_, *generation_, metrics_options_);
  }
  void TearDown() override {
    allow_steps(-1);
    tokenizer_.hold(false);
    if (!engine_) return;
    EXPECT_TRUE(engine_->wait_idle(std::chrono::steady_clock::now() + std::chrono::seconds(10)));
    const Exposition seen = scrape();
    EXPECT_EQ(seen.value("folio_num_requests_running") + seen.value("folio_num_requests_waiting"), 0);
    EXPECT_EQ(seen.value("folio_kv_blocks", {{"state", "held"}}), 0);
    EXPECT_EQ(seen.value("folio_kv_blocks_unaccounted"), 0);
    // The last references may still be on their way out of the worker and the dispatcher.
    for (int i = 0; i < 1000 && generation_->num_live_calls() > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  static v1::GenerateRequest request(const std::string& text, std::int64_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    request.mutable_stopping()->set_ignore_eos(true);
    return request;
  }
  std::shared_ptr<TestCall> start(GenerationInput input, TimePoint deadline = kNoDeadline, Caller caller = {}) {
    auto call = std::make_shared<TestCall>(*generation_, std::move(input), deadline, true, std::move(caller));
    generation_->start(call, 100);
    return call;
  }
  std::shared_ptr<TestCall> run(GenerationInput input, TimePoint deadline = kNoDeadline, Caller caller = {}) {
    auto call = start(std::move(input), deadline, std::move(caller));
    call->wait();
    return call;
  }
  void wait_until_tokenised() const {
    while (generation_->num_waiting_inputs() > 0) std::this_thread::yield();
  }
  Exposition scrape() const { return Exposition(metrics_->text()); }

  // So many steps may begin from now on; < 0: any number.
  void allow_steps(int steps) {
    {
      const std::lock_guard lock(mutex_);
      allowed_ = steps;
    }
    changed_.notify_all();
  }
  void wait_until_a_step_waits() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return waiting_; });
  }
  void fail_every(int steps) { fail_every_ = steps; }

  StillClock clock_;
  ByteTokenizer tokenizer_;
  ChatTemplate chat_template_{"", tokenizer_};
  EngineOptions options_;
  MetricsOptions metrics_options_;
  std::int32_t num_blocks_ = 64;
  std::unique_ptr<FakeModel> model_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Generation> generation_;
  std::unique_ptr<Metrics> metrics_;

 private:
  void step() {  // engine thread
    {
      std::unique_lock lock(mutex_);
      waiting_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return allowed_ != 0; });
      waiting_ = false;
      if (allowed_ > 0) --allowed_;
    }
    clock_.advance(kStepTime);
    ++num_steps_;
    if (fail_every_ > 0 && num_steps_ % fail_every_ == 0) throw std::runtime_error("out of paper");
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = -1;
  bool waiting_ = false;
  std::atomic<int> fail_every_ = 0;
  int num_steps_ = 0;  // engine thread
};

}  // namespace folio::test
