#include "client/load_test/runner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace folio::client {
namespace {

constexpr SteadyTime kNever = SteadyTime::max();
constexpr double kLongestSeconds = 1e9;  // a clock of nanoseconds goes on for 9e9

SteadyTime now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

Runner::Runner(SendPlan plan, const Workload& workload, Transport& transport, Observer observer)
    : plan_(std::move(plan)), workload_(workload), transport_(transport), observer_(std::move(observer)) {
  arrivals_ = plan_.arrivals;
  ended_ = [this](StreamRecord& stream) {
    // Under the lock, since with the last stream this object may go as well.
    const std::lock_guard lock(mutex_);
    mailbox_.push_back(&stream);
    changed_.notify_one();
  };
}

void Runner::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  changed_.notify_one();
}

SteadyTime Runner::at(double seconds) const {
  if (!(seconds < kLongestSeconds)) return kNever;
  return start_ +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

RunResult Runner::run() {
  if (plan_.num_requests != 0) upcoming_ = workload_.request(0);
  start_ = now();
  end_of_sending_ = plan_.duration_s ? at(*plan_.duration_s) : kNever;
  for (int i = 0; i < plan_.concurrency; ++i) {
    free_since_.push(at(arrivals_ ? 0 : plan_.ramp_s * i / plan_.concurrency));
  }
  if (arrivals_) advance_arrival();

  RunResult result;
  while (true) {
    wait_and_reap(SteadyTime::min());
    {
      const std::lock_guard lock(mutex_);
      if (stopped_) break;
    }
    const Next what = next(now());
    if (what.kind == Next::Kind::kOver) break;
    if (what.kind == Next::Kind::kWait) {
      wait_and_reap(what.until);
      continue;
    }
    send(arrivals_ ? arrival_ : what.until, what.until);
  }
  const auto seconds = [this](SteadyTime time) { return std::chrono::duration<double>(time - start_).count(); };
  const bool no_more_due = arrivals_ && arrival_ == kNever;
  result.all_sent = plan_.num_requests == num_sent_ || no_more_due;
  result.sending_s = seconds(now());
  result.timed_out = plan_.duration_s && plan_.num_requests != num_sent_ && result.sending_s >= *plan_.duration_s;
  result.num_missed = count_missed();
  wait_for_ends();
  result.duration_s = last_end_s_;
  const std::lock_guard lock(mutex_);
  result.stopped = stopped_;
  return result;
}

void Runner::advance_arrival() {
  arrival_ = at(arrivals_->next());
}

Runner::Next Runner::next(SteadyTime now) const {
  constexpr Next kOver{Next::Kind::kOver, {}};
  if (plan_.num_requests && num_sent_ >= *plan_.num_requests) return kOver;
  if (arrivals_ && arrival_ == kNever) return kOver;
  if (now >= end_of_sending_) return kOver;
  if (arrivals_ && arrival_ >= end_of_sending_) return {Next::Kind::kWait, end_of_sending_};
  const bool limited = plan_.concurrency > 0;
  if (limited && free_since_.empty()) return {Next::Kind::kWait, end_of_sending_};
  SteadyTime ready = limited ? free_since_.top() : start_;
  if (arrivals_) ready = std::max(ready, arrival_);
  if (ready > now) return {Next::Kind::kWait, std::min(ready, end_of_sending_)};
  return {Next::Kind::kSend, ready};
}

void Runner::send(SteadyTime due, SteadyTime ready) {
  if (plan_.concurrency > 0) free_since_.pop();
  if (arrivals_) advance_arrival();
  auto owned = std::make_unique<StreamRecord>(num_sent_, std::move(upcoming_), ended_);
  StreamRecord& stream = *owned;
  running_.emplace(&stream, std::move(owned));
  stream.start(transport_, due, ready);
  observer_.sent();
  if (++num_sent_ != plan_.num_requests) upcoming_ = workload_.request(num_sent_);
}

void Runner::wait_and_reap(SteadyTime until) {
  std::vector<StreamRecord*> ended;
  {
    std::unique_lock lock(mutex_);
    const auto something = [this] { return stopped_ || !mailbox_.empty(); };
    if (until == kNever) {  // wait_until would add to it
      changed_.wait(lock, something);
    } else if (until != SteadyTime::min()) {
      changed_.wait_until(lock, until, something);
    }
    ended.swap(mailbox_);
  }
  for (StreamRecord* stream : ended) reap(*stream);
}

void Runner::reap(StreamRecord& stream) {
  if (plan_.concurrency > 0) free_since_.push(stream.ended_at());
  RequestRecord record = stream.record(start_);
  last_end_s_ = std::max(last_end_s_, record.end_s);
  running_.erase(&stream);
  observer_.ended(std::move(record));
}

void Runner::wait_for_ends() {
  bool aborted = false;
  while (!running_.empty()) {
    std::vector<StreamRecord*> ended;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return !mailbox_.empty() || (stopped_ && !aborted); });
      ended.swap(mailbox_);
      if (stopped_ && !aborted) {
        aborted = true;
        lock.unlock();
        for (const auto& [stream, owned] : running_) stream->abort();
      }
    }
    for (StreamRecord* stream : ended) reap(*stream);
  }
}

std::int64_t Runner::count_missed() {
  if (!arrivals_) return 0;
  const SteadyTime end = std::min(now(), end_of_sending_);
  std::int64_t missed = 0;
  for (; arrival_ < end && num_sent_ + missed != plan_.num_requests; ++missed) advance_arrival();
  return missed;
}

}  // namespace folio::client
