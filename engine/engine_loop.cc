// The engine thread: one step after the other, and sleep when there is nothing to do.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "base/check.h"
#include "base/thread_name.h"
#include "engine/batch_builder.h"
#include "engine/engine_impl.h"

namespace folio {
namespace {

constexpr Duration kWalkPeriod = std::chrono::seconds(1);
// The range of what a full queue says of when to try again.
constexpr double kMinRetryMs = 100;
constexpr double kMaxRetryMs = 60'000;

FinishReason finish_reason(ErrorCode code) {
  switch (code) {
    case ErrorCode::kCancelled:
      return FinishReason::kCancelled;
    case ErrorCode::kDeadlineExceeded:
      return FinishReason::kDeadline;
    default:
      return FinishReason::kError;
  }
}

RequestRecord record_of(const RequestSummary& summary, Outcome outcome) {
  RequestRecord record;
  record.outcome = outcome;
  record.prompt_tokens = summary.prompt_tokens;
  record.output_tokens = summary.output_tokens;
  record.total = summary.end - summary.arrival;
  record.queue = (summary.first_scheduled == TimePoint{} ? summary.end : summary.first_scheduled) - summary.arrival;
  if (summary.output_tokens > 0) {
    record.prefill = summary.first_token - summary.first_scheduled;
    record.decode = summary.end - summary.first_token;
  }
  return record;
}

}  // namespace

void Engine::Impl::run() {
  name_thread("folio-engine");
  while (take_inbox()) {
    if (scheduler_.empty()) {
      scheduler_.release_expired_pins();
      publish_load(false);
      continue;
    }
    lap();
    const StepPlan& plan = scheduler_.schedule();
    const Events& events = plan.slices.empty() ? scheduler_.commit(plan, {}, {}) : run_step(plan);
    FOLIO_CHECK(!plan.slices.empty() || !events.empty(), "a schedule that finds a request moves or ends something");
    const std::size_t num_ended = events.ended.size();
    const bool was_step = plan.num_tokens > 0;
    for (const RequestSummary& summary : events.ended) {
      ++num_ended_[static_cast<std::size_t>(delivery_.outcome(summary))];
    }
    publish_load(was_step);
    observe(events, was_step);
    delivery_.deliver(events, sampled_, scores_);
    settle(num_ended);
  }
}

// Sleeps while there is nothing to do. False: the engine stops, and nothing is left.
bool Engine::Impl::take_inbox() {
  {
    std::unique_lock lock(mutex_);
    wait_for_news(lock);
    if (stopping_ && inbox_.empty() && scheduler_.empty()) return false;
    queue_.requests += inbox_.load.requests;
    queue_.prompt_tokens += inbox_.load.prompt_tokens;
    snapshot_.num_waiting += inbox_.load.requests;
    std::swap(inbox_, taken_);
  }
  for (const std::optional<RequestId>& unpinned : taken_.cache_commands) {
    if (unpinned) {
      scheduler_.unpin(*unpinned);
    } else {
      scheduler_.flush_prefix_cache();
    }
  }
  for (Submission& submission : taken_.submissions) add(submission);
  refuse_late();
  for (const auto& [id, index] : taken_.cancels) cancel_now(id, index);
  if (taken_.end_all) {
    for (RequestId id : delivery_.live_ids()) {
      delivery_.set_error(id, *taken_.end_all);
      scheduler_.end(id, finish_reason(taken_.end_all->code));
    }
  }
  give_dumps();
  taken_.clear();
  return true;
}

// One copy for all that asked meanwhile.
void Engine::Impl::give_dumps() {
  if (taken_.dumps.empty()) return;
  const auto dump = std::make_shared<const BlockDump>(folio::dump_blocks(scheduler_, blocks_));
  for (const BlockDumpReceiver& done : taken_.dumps) done(dump);
}

// Until there is something to do: news, a pin to release, a request.
void Engine::Impl::wait_for_news(std::unique_lock<std::mutex>& lock) {
  const auto news = [this] { return !inbox_.empty() || !scheduler_.empty() || stopping_; };
  const TimePoint expiry = scheduler_.pins().next_expiry();
  if (expiry == kNoDeadline) {
    wake_.wait(lock, news);
  } else {
    wake_.wait_for(lock, std::max<Duration>(expiry - clock_.now(), std::chrono::milliseconds(1)), news);
  }
}

void Engine::Impl::add(Submission& submission) {
  const RequestId id = submission.request.id;
  delivery_.add(submission.request, submission.stop_rules, std::move(submission.stream));
  if (auto error = scheduler_.submit(std::move(submission.request))) {
    FOLIO_CHECK(error->code == ErrorCode::kDeadlineExceeded, "what submit took, the scheduler takes");
    refused_.emplace_back(id, *std::move(error));
  }
}

// Their places in the queue are given back before they hear of it, and not before the other newcomers have theirs.
void Engine::Impl::refuse_late() {
  if (refused_.empty()) return;
  num_refused_late_ += static_cast<std::int64_t>(refused_.size());
  publish_load(false);
  for (auto& [id, error] : refused_) delivery_.refuse(id, std::move(error));
  settle(refused_.size());
  refused_.clear();
}

void Engine::Impl::cancel_now(RequestId id, std::int32_t index) {
  if (index != kAllIndices) {
    scheduler_.end(id, index, FinishReason::kCancelled);
    return;
  }
  delivery_.set_error(id, {ErrorCode::kCancelled, "cancelled"});
  scheduler_.end(id, FinishReason::kCancelled);
}

// batch -> logits -> tokens -> stops -> commit.
const Events& Engine::Impl::run_step(const StepPlan& plan) {
  record_ = {};
  record_.schedule_ms = lap();
  {
    const SchedulerCounts counts = scheduler_.counts();
    const std::lock_guard lock(mutex_);
    refresh_snapshot(counts);  // what was started with this plan makes room in the queue at once
  }
  describe(plan);
  const Events* events = nullptr;
  try {
    compute(plan);
    end_broken(plan);
    delivery_.check_stops(plan, sampled_);
    events = &scheduler_.commit(plan, tokens_, delivery_.verdicts());
  } catch (const std::exception& e) {
    for (const Slice& slice : plan.slices) {
      delivery_.set_error(slice.sequence->owner->request.id,
                          {ErrorCode::kInternal, std::string("the step failed: ") + e.what()});
    }
    events = &scheduler_.fail(plan);
  }
  record_.commit_ms = lap();
  if (check_invariants_) {
    const auto broken = scheduler_.broken_invariant();
    FOLIO_CHECK(!broken, broken.value_or("").c_str());
  }
  return *events;
}

// Throws what the model threw.
void Engine::Impl::compute(const StepPlan& plan) {
  build_batch(plan, limits_.block_size, batch_);
  delivery_.mask(plan, batch_.samples);
  record_.build_ms = lap();
  const Logits logits = model_.forward(batch_);
  record_.forward_ms = lap();
  record_.forward = model_.forward_times();
  sampled_.assign(batch_.samples.size(), {});
  model_.sample(logits, batch_.samples, sampled_);
  scores_.assign(batch_.scores.size(), {});
  if (!scores_.empty()) model_.score(batch_.scores, scores_);
  record_.sample_ms = lap();
  tokens_.clear();
  for (const SampledToken& token : sampled_) {
    if (token.id < kNoToken || token.id >= model_.vocab_size()) {
      throw std::runtime_error("a token outside of the vocabulary");
    }
    tokens_.push_back(token.id);
  }
}

// Rows of logits without a number end their requests. Those of the step's others are as good as ever: a row is a
// function of its own sequence alone.
void Engine::Impl::end_broken(const StepPlan& plan) {
  const auto end_if_broken = [this](const SampledToken& token, const Sequence& sequence) {
    if (token.id != kNoToken) return;
    const RequestId id = sequence.owner->request.id;
    delivery_.set_error(id, {ErrorCode::kInternal, "the model's logits are not numbers"});
    scheduler_.end(id, FinishReason::kError);
  };
  for (std::size_t i = 0; i < sampled_.size(); ++i) end_if_broken(sampled_[i], *plan.samples[i].sequence);
  auto score = scores_.cbegin();
  for (const Slice& slice : plan.slices) {
    for (std::int32_t i = 0; i < slice.num_scored; ++i) end_if_broken(*score++, *slice.sequence);
  }
}

void Engine::Impl::describe(const StepPlan& plan) {
  record_.step = plan.step;
  record_.num_tokens = plan.num_tokens;
  for (const Slice& slice : plan.slices) {
    const bool continues =
        slice.count == 1 && slice.num_logits == 1 && slice.first >= slice.sequence->num_prompt_tokens();
    ++(continues ? record_.num_decode_slices : record_.num_prefill_slices);
  }
}

// How many blocks are lost, if any, is known by walking over all tables and pins: when nobody holds any, and else when
// asked for, at most once a second.
void Engine::Impl::walk_if_due(const SchedulerCounts& counts, TimePoint now) {
  const bool due = now - last_walk_ >= kWalkPeriod && walk_wanted_.exchange(false);
  if (!due && !check_invariants_ && counts.running_requests > 0) return;
  num_unaccounted_ = scheduler_.count_blocks().unaccounted;
  last_walk_ = now;
}

// Milliseconds since the last call.
double Engine::Impl::lap() {
  const TimePoint now = clock_.now();
  return to_ms(now - std::exchange(lap_start_, now));
}

// Before the streams hear of a step's ends, so that whoever waits for an end finds its blocks given back.
void Engine::Impl::publish_load(bool was_step) {
  const SchedulerCounts counts = scheduler_.counts();
  const Duration queue_time = scheduler_.predicted_queue_time();
  const StepPhases step{record_.schedule_ms, record_.build_ms, record_.forward_ms, record_.sample_ms,
                        record_.commit_ms};
  const TimePoint now = clock_.now();
  walk_if_due(counts, now);
  const std::lock_guard lock(mutex_);
  if (was_step) {
    meter_.record(now, step, counts.prompt_tokens - snapshot_.prompt_tokens,
                  counts.output_tokens - snapshot_.output_tokens);
  }
  if (queue_time > Duration::zero()) {
    retry_after_ms_ = static_cast<std::int32_t>(std::clamp(to_ms(queue_time), kMinRetryMs, kMaxRetryMs));
  }
  refresh_snapshot(counts);
}

// Between a schedule and its step, and after a commit. REQUIRES mutex_.
void Engine::Impl::refresh_snapshot(const SchedulerCounts& counts) {
  queue_ = scheduler_.queue();
  snapshot_.num_running = counts.running_requests;
  snapshot_.num_waiting = counts.waiting_requests;
  snapshot_.blocks_total = blocks_.num_blocks();
  snapshot_.blocks_free = blocks_.num_free();
  snapshot_.blocks_cached = blocks_.num_cached();
  snapshot_.blocks_held = blocks_.num_held() - num_unaccounted_;
  snapshot_.blocks_pinned = scheduler_.pins().num_blocks();
  snapshot_.blocks_unaccounted = num_unaccounted_;
  snapshot_.num_pins = scheduler_.pins().size();
  snapshot_.num_pins_released = counts.num_pins_released;
  snapshot_.num_steps = counts.num_steps;
  snapshot_.num_ended = num_ended_;
  snapshot_.num_refused_late = num_refused_late_;
  snapshot_.prompt_tokens = counts.prompt_tokens;
  snapshot_.answered_prompt_tokens = counts.answered_prompt_tokens;
  snapshot_.queried_tokens = counts.queried_tokens;
  snapshot_.cached_tokens = counts.cached_tokens;
  snapshot_.output_tokens = counts.output_tokens;
  snapshot_.num_preemptions = counts.num_preemptions;
  snapshot_.step_times = scheduler_.step_times();
}

void Engine::Impl::observe(const Events& events, bool was_step) {
  for (const auto& observer : observers_) {
    if (was_step) observer->on_step(record_);
    for (const SequenceEvent& event : events.sequences) {
      if (event.ttft != kNoDuration) observer->on_first_token(event.ttft);
      if (event.gap != kNoDuration) observer->on_next_token(event.gap);
    }
    for (const RequestSummary& summary : events.ended) {
      observer->on_end(record_of(summary, delivery_.outcome(summary)));
    }
  }
}

void Engine::Impl::settle(std::size_t num_ended) {
  if (num_ended == 0) return;
  const std::lock_guard lock(mutex_);
  num_open_ -= static_cast<std::int64_t>(num_ended);
  if (num_open_ == 0) idle_.notify_all();
}

void Engine::Impl::Inbox::clear() {
  cache_commands.clear();
  submissions.clear();
  cancels.clear();
  dumps.clear();
  end_all.reset();
  load = {};
}

}  // namespace folio
