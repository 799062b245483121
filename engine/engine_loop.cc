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

StepRecord description_of(const StepPlan& plan) {
  StepRecord record;
  record.step = plan.step;
  record.num_tokens = plan.num_tokens;
  for (const Slice& slice : plan.slices) {
    const bool continues =
        slice.count == 1 && slice.num_logits == 1 && slice.first >= slice.sequence->num_prompt_tokens();
    ++(continues ? record.num_decode_slices : record.num_prefill_slices);
  }
  return record;
}

}  // namespace

// At depth 1 each step is finished as soon as it was started. At depth 2 one more is started first, as long as there is
// something to start; when there is not, the oldest is waited for.
void Engine::Impl::run() {
  name_thread("folio-engine");
  while (take_inbox()) {
    if (scheduler_.empty() && flights_.empty()) {
      scheduler_.release_expired_pins();
      publish_load(nullptr);
      continue;
    }
    const bool advanced = may_start() && start_next();
    if (!advanced || std::ssize(flights_) == depth_) finish_oldest();
  }
}

// Sleeps while there is nothing to do. False: the engine stops, and nothing is left.
bool Engine::Impl::take_inbox() {
  {
    std::unique_lock lock(mutex_);
    wait_for_news(lock);
    if (stopping_ && inbox_.empty() && scheduler_.empty() && flights_.empty()) return false;
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
  if (taken_.end_all) end_all_now(*taken_.end_all);
  if (lost_) end_all_now(*lost_);  // who was accepted before that was known
  give_dumps();
  taken_.clear();
  return true;
}

// One copy for all that asked meanwhile, of a moment when no step holds what no sequence does.
void Engine::Impl::give_dumps() {
  if (taken_.dumps.empty()) return;
  while (!flights_.empty()) finish_oldest();
  const auto dump = std::make_shared<const BlockDump>(folio::dump_blocks(scheduler_, blocks_));
  for (const BlockDumpReceiver& done : taken_.dumps) done(dump);
}

// Until there is something to do: news, a pin to release, a request.
void Engine::Impl::wait_for_news(std::unique_lock<std::mutex>& lock) {
  const auto news = [this] { return !inbox_.empty() || !scheduler_.empty() || !flights_.empty() || stopping_; };
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
  publish_load(nullptr);
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

void Engine::Impl::end_all_now(const Error& reason) {
  for (RequestId id : delivery_.live_ids()) {
    delivery_.set_error(id, reason);
    scheduler_.end(id, finish_reason(reason.code));
  }
}

// A step may be started behind the one in flight unless it would need what only that one's commit brings: a sample that
// reads the tokens before it (penalties) is drawn when all of them are known. Scores are of the prompt, and masks count
// tokens: they wait for nobody. And behind a step that failed nothing is started.
bool Engine::Impl::may_start() const {
  if (scheduler_.empty()) return false;
  if (flights_.empty()) return true;
  const auto reads_history = [](const PlannedSample& sample) {
    return sample.sequence->owner->request.sampling.reads_history();
  };
  return std::ssize(flights_) < depth_ && !lost_ && !flights_.back().failure &&
         std::ranges::none_of(flights_.back().plan->samples, reads_history);
}

// False: there is nothing to start, and nobody to end, before what is in flight was committed.
bool Engine::Impl::start_next() {
  lap();
  const StepPlan& plan = scheduler_.schedule();
  if (plan.slices.empty()) {
    const Events& events = scheduler_.commit(plan, {}, {});
    if (events.empty()) return false;
    tell(events, nullptr);
    return true;
  }
  Flight& flight = flights_.emplace_back(&plan, description_of(plan));
  flight.record.schedule_ms = lap();
  {
    const SchedulerCounts counts = scheduler_.counts();
    const std::lock_guard lock(mutex_);
    refresh_snapshot(counts);  // what was started with this plan makes room in the queue at once
  }
  try {
    start(flight);
  } catch (const DeviceLost& e) {
    lose_device(e.what());
  } catch (const std::exception&) {
    flight.failure = std::current_exception();
  }
  return true;
}

// Throws what the model threw.
void Engine::Impl::start(Flight& flight) {
  build_batch(*flight.plan, limits_.block_size, batch_);
  delivery_.mask(*flight.plan, batch_.samples);
  flight.record.build_ms = lap();
  model_.start(batch_);
  flight.record.forward_ms = lap();
}

void Engine::Impl::finish_oldest() {
  FOLIO_CHECK(!flights_.empty(), "a schedule that finds a request moves or ends something");
  lap();
  Flight flight = std::move(flights_.front());
  flights_.erase(flights_.begin());
  const Events& events = commit(flight);
  flight.record.commit_ms = lap();
  if (check_invariants_) {
    const auto broken = scheduler_.broken_invariant();
    FOLIO_CHECK(!broken, broken.value_or("").c_str());
  }
  tell(events, &flight.record);
}

// tokens -> stops -> commit.
const Events& Engine::Impl::commit(Flight& flight) {
  const StepPlan& plan = *flight.plan;
  if (lost_) return scheduler_.fail(plan);
  try {
    if (flight.failure) std::rethrow_exception(flight.failure);
    collect(flight);
    end_broken(plan);
    delivery_.check_stops(plan, sampled_);
    return scheduler_.commit(plan, tokens_, delivery_.verdicts());
  } catch (const DeviceLost& e) {
    lose_device(e.what());
  } catch (const std::exception& e) {
    for (const Slice& slice : plan.slices) {
      delivery_.set_error(slice.sequence->owner->request.id,
                          {ErrorCode::kInternal, std::string("the step failed: ") + e.what()});
    }
  }
  return scheduler_.fail(plan);
}

// Throws what the model threw.
void Engine::Impl::collect(Flight& flight) {
  const StepPlan& plan = *flight.plan;
  std::size_t num_scores = 0;
  for (const Slice& slice : plan.slices) num_scores += static_cast<std::size_t>(slice.num_scored);
  sampled_.assign(plan.samples.size(), {});
  scores_.assign(num_scores, {});
  StepRecord& record = flight.record;
  record.forward = model_.collect(sampled_, scores_);
  record.forward_ms += lap();
  record.sample_ms = std::min(record.forward_ms, static_cast<double>(record.forward.sample_ns) / 1e6);
  record.forward_ms -= record.sample_ms;
  tokens_.clear();
  for (const SampledToken& token : sampled_) {
    if (token.id < kNoToken || token.id >= model_.vocab_size()) {
      throw std::runtime_error("a token outside of the vocabulary");
    }
    tokens_.push_back(token.id);
  }
}

// The requests in flight end with their steps' fail(), the others with the next schedule().
void Engine::Impl::lose_device(const std::string& what) {
  lost_ = Error{ErrorCode::kUnavailable, "the device was lost: " + what};
  {
    const std::lock_guard lock(mutex_);
    refusal_ = lost_;
  }
  for (const auto& observer : observers_) observer->on_device_lost(what);
  end_all_now(*lost_);
}

// Rows of logits without a number end their requests. Those of the step's others are as good as ever: a row is a
// function of its own sequence alone. One that ended while the step was in flight has no say any more.
void Engine::Impl::end_broken(const StepPlan& plan) {
  const auto end_if_broken = [this](const SampledToken& token, const Sequence& sequence) {
    if (token.id != kNoToken || sequence.state == SequenceState::kEnded) return;
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

// The streams hear of it last (publish_load).
void Engine::Impl::tell(const Events& events, const StepRecord* step) {
  for (const RequestSummary& summary : events.ended) {
    ++num_ended_[static_cast<std::size_t>(delivery_.outcome(summary))];
  }
  publish_load(step);
  observe(events, step);
  const std::size_t num_ended = events.ended.size();
  delivery_.deliver(events, sampled_, scores_);
  settle(num_ended);
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

// Before the streams hear of a step's ends, so that whoever waits for an end finds its blocks given back (but for those
// that the step behind names still; wait_idle waits for that too).
void Engine::Impl::publish_load(const StepRecord* step) {
  const SchedulerCounts counts = scheduler_.counts();
  const Duration queue_time = scheduler_.predicted_queue_time();
  const TimePoint now = clock_.now();
  walk_if_due(counts, now);
  const std::lock_guard lock(mutex_);
  if (step != nullptr) {
    const StepPhases phases{step->schedule_ms, step->build_ms, step->forward_ms, step->sample_ms, step->commit_ms};
    meter_.record(now, phases, counts.prompt_tokens - snapshot_.prompt_tokens,
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

void Engine::Impl::observe(const Events& events, const StepRecord* step) {
  for (const auto& observer : observers_) {
    if (step != nullptr) observer->on_step(*step);
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
  const std::lock_guard lock(mutex_);
  num_open_ -= static_cast<std::int64_t>(num_ended);
  num_in_flight_ = flights_.size();
  if (num_open_ == 0 && num_in_flight_ == 0) idle_.notify_all();
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
