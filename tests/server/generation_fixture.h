// A front for tests that a test can slow down.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tests/server/front_fixture.h"

namespace folio::test {

// A front of one call: reads at once, or only when the test says so.
class TestCall final : public GenerationCall {
 public:
  TestCall(Generation& generation, GenerationInput input, TimePoint deadline, bool reads, Caller caller)
      : GenerationCall(generation, deadline, std::move(caller)), input_(std::move(input)), reads_(reads) {}

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

class GenerationTest : public FrontTest {
 protected:
  std::shared_ptr<TestCall> start(GenerationInput input, TimePoint deadline = kNoDeadline, bool reads = true,
                                  Caller caller = {}) {
    auto call = std::make_shared<TestCall>(generation_, std::move(input), deadline, reads, std::move(caller));
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
};

}  // namespace folio::test
