// Ends calls whose reader takes nothing (--write-timeout): a write that is under way for longer than that. Slow readers
// are fine, as long as they take each chunk in that time.
//
// A call only notes when its write began and that it ended, two stores; one thread looks at all of them a few times in
// the time-out, and sleeps while there is no call.
#pragma once
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "base/clock.h"

namespace folio {

class WriteWatch;

// A call of gRPC's that is watched. Outlives the library's own object of the call, so that ending it is safe at any
// time.
class WatchedCall {
 public:
  explicit WatchedCall(grpc::CallbackServerContext& context);
  virtual ~WatchedCall();
  WatchedCall(const WatchedCall&) = delete;
  WatchedCall& operator=(const WatchedCall&) = delete;

 protected:
  // One write at a time; the last one, which comes with the status, ends with the call.
  void write_begins();
  void write_ends() { since_.store(kNone); }

 private:
  friend class WriteWatch;
  static constexpr std::int64_t kNone = 0;

  grpc_call* const call_;
  std::atomic<std::int64_t> since_{kNone};  // ticks of the steady clock
};

class WriteWatch {
 public:
  explicit WriteWatch(Duration limit);
  ~WriteWatch();  // REQUIRES that no call is left
  WriteWatch(const WriteWatch&) = delete;
  WriteWatch& operator=(const WriteWatch&) = delete;

  // Any thread. From add to remove; a call removes itself when the library is done with it.
  void add(const std::shared_ptr<WatchedCall>& call);
  void remove(WatchedCall& call);
  // Calls that ended for that reason, since start; the other front, which watches its own, adds to them.
  std::int64_t num_ended() const { return num_ended_.load(); }
  void count_ended() { num_ended_.fetch_add(1); }

 private:
  void work();
  void look(std::unique_lock<std::mutex>& lock);

  const Duration limit_;
  const Duration period_;
  const std::string message_;
  std::atomic<std::int64_t> num_ended_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<WatchedCall*, std::weak_ptr<WatchedCall>> calls_;  // the keys are alive until they are removed
  bool stop_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace folio
