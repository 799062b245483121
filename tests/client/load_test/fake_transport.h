// A wire without a network: what a server of known behaviour would send, at its times, on a thread of its own.
#pragma once
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/load_test/transport.h"

namespace folio::testing {

using client::Arrival;
using client::RequestSpec;
using client::ServedModel;
using client::SteadyTime;
using client::StreamEnd;
using client::StreamListener;

class FakeTransport final : public client::Transport {
 public:
  // One thing that a stream brings, so many milliseconds after it was sent.
  struct Part {
    double after_ms = 0;
    std::int64_t tokens = 0;
    bool is_end = false;
    StreamEnd end{};
  };
  // On the caller's thread of start.
  using Answer = std::function<std::vector<Part>(int number, const RequestSpec&)>;

  explicit FakeTransport(Answer answer) : answer_(std::move(answer)), thread_([this] { run(); }) {}
  ~FakeTransport() override {
    {
      const std::lock_guard lock(mutex_);
      quit_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  ServedModel model() override { return {"fake", 1000, 4096}; }
  std::vector<std::int32_t> tokenize(const std::string&) override { throw std::runtime_error("no tokenizer"); }
  std::unique_ptr<client::Call> start(const RequestSpec& request, StreamListener& listener) override {
    const std::vector<Part> parts = answer_(num_started_++, request);
    const SteadyTime now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    const int id = ++last_id_;
    for (const Part& part : parts) {
      events_.emplace(now + std::chrono::duration_cast<SteadyTime::duration>(
                                std::chrono::duration<double, std::milli>(part.after_ms)),
                      Event{id, &listener, part});
    }
    changed_.notify_one();
    return std::make_unique<FakeCall>(*this, id, listener);
  }

  // While a freeze lasts nothing is sent; afterwards all that was due comes at once.
  void freeze(SteadyTime until) {
    const std::lock_guard lock(mutex_);
    frozen_until_ = until;
  }

 private:
  struct Event {
    int id = 0;
    StreamListener* listener = nullptr;
    Part part;
  };
  class FakeCall final : public client::Call {
   public:
    FakeCall(FakeTransport& transport, int id, StreamListener& listener)
        : transport_(transport), id_(id), listener_(listener) {}
    void cancel() override { transport_.cancel(id_, listener_); }

   private:
    FakeTransport& transport_;
    const int id_;
    StreamListener& listener_;
  };

  void cancel(int id, StreamListener& listener) {
    const std::lock_guard lock(mutex_);
    if (std::erase_if(events_, [&](const auto& event) { return event.second.id == id; }) == 0) return;  // it has ended
    StreamEnd end;
    end.error = "CANCELLED";
    events_.emplace(SteadyTime::min(), Event{id, &listener, {0, 0, true, end}});
    changed_.notify_one();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!quit_) {
      if (events_.empty()) {
        changed_.wait(lock);
        continue;
      }
      const bool is_cancel = events_.begin()->first == SteadyTime::min();
      const SteadyTime at = is_cancel ? SteadyTime::min() : std::max(events_.begin()->first, frozen_until_);
      const SteadyTime now = std::chrono::steady_clock::now();
      if (at > now) {
        changed_.wait_until(lock, at);
        continue;
      }
      const Event event = events_.begin()->second;
      events_.erase(events_.begin());
      lock.unlock();
      if (event.part.is_end) {
        StreamEnd end = event.part.end;
        end.at = now;
        event.listener->on_end(end);
      } else {
        event.listener->on_arrival({now, event.part.tokens});
      }
      lock.lock();
    }
  }

  const Answer answer_;
  int num_started_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool quit_ = false;
  int last_id_ = 0;
  SteadyTime frozen_until_ = SteadyTime::min();
  std::multimap<SteadyTime, Event> events_;
  std::thread thread_;
};

// `tokens` one by one, the first after `first_ms`, the others with `gap_ms` between them, and a normal end with usage.
inline std::vector<FakeTransport::Part> answer(std::int64_t tokens, double first_ms, double gap_ms) {
  std::vector<FakeTransport::Part> parts;
  for (std::int64_t i = 0; i < tokens; ++i) parts.push_back({first_ms + gap_ms * static_cast<double>(i), 1, false, {}});
  StreamEnd end;
  end.prompt_tokens = 3;
  end.output_tokens = tokens;
  parts.push_back({first_ms + gap_ms * static_cast<double>(tokens), 0, true, end});
  return parts;
}

}  // namespace folio::testing
