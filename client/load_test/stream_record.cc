#include "client/load_test/stream_record.h"

#include <algorithm>
#include <string>
#include <utility>

namespace folio::client {

StreamRecord::StreamRecord(std::int64_t number, PlannedRequest request, const Ended& ended)
    : number_(number), request_(std::move(request)), ended_(ended) {}

void StreamRecord::start(Transport& transport, SteadyTime due, SteadyTime ready) {
  due_ = due;
  ready_ = ready;
  sent_ = std::chrono::steady_clock::now();
  call_ = transport.start(request_.spec, *this);
  cancellable_.store(call_.get());
  if (request_.cancel_after == 0) cancelled_.store(true);
  if (cancelled_.load()) call_->cancel();
}

void StreamRecord::abort() {
  aborted_ = true;
  cancel();
}

void StreamRecord::cancel() {
  cancelled_.store(true);
  if (Call* call = cancellable_.load()) call->cancel();
}

void StreamRecord::on_arrival(const Arrival& arrival) {
  if (!has_content(arrival)) return;
  arrivals_.push_back(arrival);
  if (!request_.cancel_after) return;
  tokens_seen_ += std::max<std::int64_t>(arrival.tokens, 1);  // without ids a message counts as one
  if (tokens_seen_ >= *request_.cancel_after && !cancelled_.load()) cancel();
}

void StreamRecord::on_end(const StreamEnd& end) {
  ended_at_ = std::chrono::steady_clock::now();
  end_ = end;
  ended_(*this);
}

Outcome StreamRecord::outcome() const {
  if (end_.error.empty()) return arrivals_.empty() ? Outcome::kEmpty : Outcome::kOk;
  if (end_.error != "CANCELLED" || !cancelled_.load()) return Outcome::kFailed;
  return aborted_ ? Outcome::kAborted : Outcome::kCancelled;
}

// A server's counts are held in memory and added up: one that cannot be is a bad answer, and no more than that.
void StreamRecord::check_counts() {
  constexpr std::int64_t kMost = std::int64_t{1} << 26;
  // A server may overshoot what was asked for, and is measured then too.
  const std::int64_t asked = 4 * request_.spec.n * (request_.spec.max_tokens + 1000);
  std::int64_t num_ids = 0;
  for (const Arrival& arrival : arrivals_)
    num_ids = std::min(kMost + 1, num_ids + std::clamp(arrival.tokens, std::int64_t{0}, kMost + 1));
  bool absurd = false;
  const auto refuse = [this, &absurd](const char* name, std::int64_t count) {
    absurd = true;
    if (!end_.error.empty()) return;
    end_.error = "bad answer";
    end_.message = std::string(name) + ": " + std::to_string(count) + " tokens";
  };
  for (const std::int64_t count : {num_ids, end_.output_tokens.value_or(0)}) {
    if (count < 0 || count > std::min(asked, kMost)) refuse("output", count);
  }
  for (const std::int64_t count : {end_.prompt_tokens.value_or(0), end_.cached_tokens.value_or(0)}) {
    if (count < 0 || count > kMost) refuse("prompt", count);
  }
  if (!absurd) return;
  end_.output_tokens.reset();
  end_.prompt_tokens.reset();
  end_.cached_tokens.reset();
  for (Arrival& arrival : arrivals_) arrival.tokens = 0;
}

RequestRecord StreamRecord::record(SteadyTime load_start) {
  check_counts();
  const auto seconds = [load_start](SteadyTime time) {
    return std::chrono::duration<double>(time - load_start).count();
  };
  RequestRecord out;
  out.number = number_;
  out.outcome = outcome();
  out.error = std::move(end_.error);
  out.message = std::move(end_.message);
  out.due_s = seconds(due_);
  out.ready_s = seconds(ready_);
  out.sent_s = seconds(sent_);
  out.end_s = seconds(end_.at);
  if (!arrivals_.empty()) out.first_s = seconds(arrivals_.front().at);
  out.prompt_tokens = end_.prompt_tokens.value_or(0);
  out.cached_tokens = end_.cached_tokens.value_or(0);
  std::int64_t num_ids = 0;
  for (const Arrival& arrival : arrivals_) num_ids += arrival.tokens;
  out.output_tokens = end_.output_tokens;
  if (!out.output_tokens && (num_ids > 0 || arrivals_.empty())) out.output_tokens = num_ids;
  out.counts_differ = num_ids > 0 && out.output_tokens != num_ids;
  if (out.outcome != Outcome::kOk) return out;
  out.estimated = end_.is_estimate;
  const RequestSpec& spec = request_.spec;
  if (spec.ignore_eos && spec.stop.empty()) out.num_asked = spec.n * spec.max_tokens;
  out.times = measure(arrivals_, out.output_tokens, load_start);
  return out;
}

}  // namespace folio::client
