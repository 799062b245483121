#include "server/write_watch.h"

#include <grpc/grpc.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <vector>

#include "base/thread_name.h"

namespace folio {
namespace {

constexpr int kLooksPerLimit = 8;
constexpr Duration kLongestPeriod = std::chrono::seconds(1);

std::int64_t now_ticks() {
  return std::chrono::steady_clock::now().time_since_epoch().count();
}

std::string message_for(Duration limit) {
  std::ostringstream text;
  text << "nothing of the answer was read for " << to_ms(limit) / 1000 << " s (--write-timeout)";
  return text.str();
}

}  // namespace

WatchedCall::WatchedCall(grpc::CallbackServerContext& context) : call_(context.c_call()) {
  grpc_call_ref(call_);
}

WatchedCall::~WatchedCall() {
  grpc_call_unref(call_);
}

void WatchedCall::write_begins() {
  since_.store(now_ticks());
}

WriteWatch::WriteWatch(Duration limit)
    : limit_(limit), period_(std::min(limit / kLooksPerLimit, kLongestPeriod)), message_(message_for(limit)) {
  thread_ = std::thread([this] { work(); });
}

WriteWatch::~WriteWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void WriteWatch::add(const std::shared_ptr<WatchedCall>& call) {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    first = calls_.empty();
    calls_.emplace(call.get(), call);
  }
  if (first) changed_.notify_one();
}

void WriteWatch::remove(WatchedCall& call) {
  const std::lock_guard lock(mutex_);
  calls_.erase(&call);
}

void WriteWatch::work() {
  name_thread("folio-writes");
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !calls_.empty(); });
    if (stop_) return;
    look(lock);
    changed_.wait_for(lock, period_, [this] { return stop_; });
  }
}

// Ending a call runs its callbacks, which come back to remove(): not under the lock.
void WriteWatch::look(std::unique_lock<std::mutex>& lock) {
  const std::int64_t latest = (std::chrono::steady_clock::now() - limit_).time_since_epoch().count();
  std::vector<std::shared_ptr<WatchedCall>> stalled;
  for (const auto& [call, weak] : calls_) {
    std::int64_t since = call->since_.load();
    if (since == WatchedCall::kNone || since > latest) continue;
    // Once: unless this write ended just now.
    if (!call->since_.compare_exchange_strong(since, WatchedCall::kNone)) continue;
    if (auto alive = weak.lock()) stalled.push_back(std::move(alive));
  }
  if (stalled.empty()) return;
  lock.unlock();
  for (const auto& call : stalled) {
    count_ended();
    grpc_call_cancel_with_status(call->call_, GRPC_STATUS_CANCELLED, message_.c_str(), nullptr);
  }
  stalled.clear();  // the last references may be these
  lock.lock();
}

}  // namespace folio
