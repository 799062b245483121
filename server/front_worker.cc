#include "server/front_worker.h"

#include <string>
#include <utility>

#include "base/thread_name.h"

namespace folio {
namespace {

// An inbox is worked off much faster than a queue; what fills it is a burst.
constexpr std::int32_t kRetryAfterMs = 1000;

const Error& abandoned_error() {
  static const Error error{ErrorCode::kCancelled, "cancelled by the caller"};
  return error;
}

}  // namespace

FrontWorker::FrontWorker(std::size_t max_jobs, std::size_t max_bytes)
    : max_jobs_(max_jobs), max_bytes_(max_bytes), thread_([this] { work(); }) {}

FrontWorker::~FrontWorker() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

bool FrontWorker::fits(std::size_t bytes) const {
  return inbox_.empty() || (inbox_.size() < max_jobs_ && bytes <= max_bytes_ && bytes_ <= max_bytes_ - bytes);
}

std::deque<FrontWorker::Entry> FrontWorker::take_abandoned() {
  std::deque<Entry> kept;
  std::deque<Entry> gone;
  for (Entry& entry : inbox_) {
    const bool abandoned = entry.job->abandoned();
    if (abandoned) bytes_ -= entry.bytes;
    (abandoned ? gone : kept).push_back(std::move(entry));
  }
  inbox_ = std::move(kept);
  return gone;
}

void FrontWorker::submit(const std::shared_ptr<FrontJob>& job, std::size_t bytes) {
  std::deque<Entry> gone;
  std::optional<Error> refused;
  {
    const std::lock_guard lock(mutex_);
    if (!stop_ && !fits(bytes)) gone = take_abandoned();
    if (stop_) {
      refused = Error{ErrorCode::kUnavailable, "the server is shutting down"};
    } else if (!fits(bytes)) {
      refused = Error{ErrorCode::kResourceExhausted,
                      "too many requests wait to be tokenised: " + std::to_string(inbox_.size()) + " of " +
                          std::to_string(bytes_) + " bytes; at most " + std::to_string(max_jobs_) +
                          " (--max-queue and --max-num-seqs together) of " + std::to_string(max_bytes_) + " bytes wait",
                      kRetryAfterMs};
    } else {
      inbox_.push_back({job, bytes});
      bytes_ += bytes;
    }
  }
  wake_.notify_one();
  // Outside the lock: drop calls into a front.
  for (const Entry& entry : gone) entry.job->drop(abandoned_error());
  if (refused) job->drop(*refused);
}

std::size_t FrontWorker::num_waiting() const {
  const std::lock_guard lock(mutex_);
  return inbox_.size() + (busy_ ? 1U : 0U);
}

void FrontWorker::work() {
  name_thread("folio-front");
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stop_ || !inbox_.empty(); });
    if (inbox_.empty()) return;
    Entry entry = std::move(inbox_.front());
    inbox_.pop_front();
    bytes_ -= entry.bytes;
    busy_ = true;
    const bool stop = stop_;
    lock.unlock();
    if (stop) {
      entry.job->drop({ErrorCode::kUnavailable, "the server is shutting down"});
    } else if (entry.job->abandoned()) {
      entry.job->drop(abandoned_error());
    } else {
      entry.job->run();
    }
    entry.job.reset();  // the last reference may be this one: its destructor runs without the lock
    lock.lock();
    busy_ = false;
  }
}

}  // namespace folio
