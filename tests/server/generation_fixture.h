// A generation layer for tests: a real engine over a scripted model, and a front that a test can slow down.
#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/generation.h"
#include "tests/server/byte_tokenizer.h"
#include "tests/server/scripted_model.h"

namespace folio::test {

// A front of one call: reads at once, or only when the test says so.
class TestCall final : public GenerationCall {
 public:
  TestCall(Generation& generation, GenerationInput input, TimePoint deadline, bool reads)
      : GenerationCall(generation, deadline), input_(std::move(input)), reads_(reads) {}

  // Blocks until the call's end.
  std::optional<Error> wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return ended_; });
    return end_error_;
  }
  v1::GenerateResponse whole() {
    const std::lock_guard lock(mutex_);
    return whole_;
  }
  bool ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  std::int64_t wait_for_tokens(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock,
                  [&] { return ended_ || (whole_.outputs_size() > 0 && whole_.outputs(0).tokens_size() >= count); });
    return whole_.outputs_size() > 0 ? whole_.outputs(0).tokens_size() : 0;
  }
  void start_reading() {
    reads_.store(true);
    wake();
  }

 private:
  Result<GenerationInput> parse() override { return input_; }
  void deliver() override {
    if (!reads_.load()) return;
    v1::GenerateChunk chunk;
    Next what = next(chunk);
    for (; what == Next::kChunk; what = next(chunk)) {
      const std::lock_guard lock(mutex_);
      join_chunk(chunk, whole_);
      changed_.notify_all();
    }
    if (what != Next::kEnd) return;
    const std::lock_guard lock(mutex_);
    if (!ended_ && error()) end_error_ = error();
    ended_ = true;
    changed_.notify_all();
  }

  const GenerationInput input_;
  std::atomic<bool> reads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  v1::GenerateResponse whole_;
  bool ended_ = false;
  std::optional<Error> end_error_;
};

class GenerationTest : public ::testing::Test {
 protected:
  static EngineOptions engine_options() {
    EngineOptions options;
    options.max_num_seqs = 8;
    options.max_batch_tokens = 64;
    options.max_queue = 4;
    options.check_invariants = true;
    return options;
  }
  static GenerationOptions generation_options() {
    GenerationOptions options;
    options.model_name = "tiny";
    options.max_num_seqs = 8;
    return options;
  }
  void TearDown() override {
    model_.release();
    tokenizer_.hold(false);
    EXPECT_TRUE(engine_.wait_idle(clock_.now() + std::chrono::seconds(10)));
    const LoadSnapshot load = engine_.load();
    EXPECT_EQ(load.blocks_free, load.blocks_total);
    EXPECT_EQ(load.blocks_unaccounted, 0);
  }

  static v1::GenerateRequest greedy(const std::string& text, std::int64_t max_tokens) {
    v1::GenerateRequest request;
    request.set_text(text);
    request.mutable_sampling()->set_temperature(0);
    request.mutable_stopping()->set_max_tokens(max_tokens);
    return request;
  }
  std::shared_ptr<TestCall> start(GenerationInput input, TimePoint deadline = kNoDeadline, bool reads = true) {
    auto call = std::make_shared<TestCall>(generation_, std::move(input), deadline, reads);
    generation_.start(call, 100);
    return call;
  }
  Error refusal(GenerationInput input) {
    const auto call = start(std::move(input));
    const auto error = call->wait();
    EXPECT_TRUE(error);
    EXPECT_EQ(call->whole().outputs_size(), 0);
    return error.value_or(Error{});
  }

  ByteTokenizer tokenizer_;
  ScriptedModel model_;
  SteadyClock clock_;
  ChatTemplate chat_template_{"", tokenizer_};
  Engine engine_{model_, tokenizer_, clock_, engine_options()};
  Generation generation_{engine_, tokenizer_, chat_template_, clock_, generation_options()};
};

}  // namespace folio::test
