// The one thread that turns requests into token ids: parsing, tokenising and chat rendering are done here and not on
// gRPC's threads, so that a long prompt delays other prompts at most, never health, load or running streams.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"

namespace folio {

// One piece of work. Exactly one of run and drop is called, once, or drop from within FrontWorker::submit.
class FrontJob {
 public:
  virtual ~FrontJob() = default;
  virtual bool abandoned() const = 0;         // any thread: its caller is gone, or it is too late for it
  virtual void run() = 0;                     // worker thread
  virtual void drop(const Error& error) = 0;  // worker thread or the thread that submits: it will not be run
};

class FrontWorker {
 public:
  // The inbox holds at most max_jobs jobs and max_bytes bytes of input (one job is always taken into an empty inbox).
  FrontWorker(std::size_t max_jobs, std::size_t max_bytes);
  ~FrontWorker();  // drops what waits with kUnavailable, waits for the job in progress

  FrontWorker(const FrontWorker&) = delete;
  FrontWorker& operator=(const FrontWorker&) = delete;

  // Any thread. A full inbox first loses the jobs that were abandoned; if that makes no room, `job` is dropped with
  // kResourceExhausted and a retry hint before this returns.
  void submit(const std::shared_ptr<FrontJob>& job, std::size_t bytes);
  std::size_t num_waiting() const;  // any thread; the job in progress counts

 private:
  struct Entry {
    std::shared_ptr<FrontJob> job;
    std::size_t bytes = 0;
  };

  void work();
  bool fits(std::size_t bytes) const;
  std::deque<Entry> take_abandoned();

  const std::size_t max_jobs_;
  const std::size_t max_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Entry> inbox_;
  std::size_t bytes_ = 0;  // of inbox_
  bool busy_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace folio
