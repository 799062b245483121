#include "engine/engine.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/check.h"
#include "block_manager/block_manager.h"
#include "engine/batch_builder.h"
#include "engine/delivery.h"
#include "engine/load_meter.h"
#include "scheduler/scheduler.h"

namespace folio {
namespace {

constexpr Duration kWalkPeriod = std::chrono::seconds(1);
// When a full queue is worth another try: while nothing is known of the speed, and the range of what is told later.
constexpr std::int32_t kDefaultRetryMs = 1000;
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

}  // namespace

class Engine::Impl {
 public:
  Impl(Model& model, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options);
  ~Impl();

  Result<RequestId> submit(GenerationRequest request, std::shared_ptr<TokenStream> stream);
  void cancel(RequestId id, std::int32_t index);
  void flush_prefix_cache();
  void unpin(RequestId id);
  LoadSnapshot load() const;
  void stop_accepting();
  bool wait_idle(TimePoint deadline);
  void end_all(Error reason);
  void set_step_observer(std::function<void(const StepRecord&)> observer) { observer_ = std::move(observer); }
  std::int32_t max_context() const { return limits_.max_context; }

  static constexpr std::int32_t kAllIndices = -1;

 private:
  struct Submission {
    Request request;
    std::shared_ptr<const StopRules> stop_rules;
    std::shared_ptr<TokenStream> stream;
  };
  struct Cancel {
    RequestId id;
    std::int32_t index;
  };
  static constexpr RequestId kFlush = ~RequestId{0};
  // News for the engine thread.
  struct Inbox {
    std::vector<RequestId> cache_commands;  // unpin this one (0: all), or kFlush; before the submissions
    std::vector<Submission> submissions;
    std::vector<Cancel> cancels;
    std::optional<Error> end_all;
    QueueLoad load;  // of the submissions
    bool empty() const { return cache_commands.empty() && submissions.empty() && cancels.empty() && !end_all; }
    void clear();
  };

  // Engine thread.
  void run();
  bool take_inbox();
  void wait_for_news(std::unique_lock<std::mutex>& lock);
  void add(Submission& submission);
  void cancel_now(RequestId id, std::int32_t index);
  const Events& run_step(const StepPlan& plan);
  void compute(const StepPlan& plan);
  void describe(const StepPlan& plan);
  void count_blocks(const SchedulerCounts& counts, TimePoint now);
  void publish_load(bool was_step);
  void settle(std::size_t num_ended);
  double lap();

  Model& model_;
  const Tokenizer& tokenizer_;
  const Clock& clock_;
  const SchedulerLimits limits_;
  const bool check_invariants_;
  std::function<void(const StepRecord&)> observer_;

  // Engine thread only.
  BlockManager blocks_;
  Scheduler scheduler_;
  Delivery delivery_;
  StepBatch batch_;
  std::vector<SampledToken> sampled_;
  std::vector<TokenId> tokens_;
  Inbox taken_;
  StepRecord record_;
  BlockCounts walked_;  // by the last walk
  TimePoint last_walk_{};
  TimePoint lap_start_{};

  mutable std::mutex mutex_;  // for all below; never held while a step runs
  std::condition_variable wake_;
  std::condition_variable idle_;
  Inbox inbox_;
  QueueLoad queue_;            // of the scheduler; with the inbox's load, what a newcomer finds before it
  std::int64_t num_open_ = 0;  // accepted and not ended
  RequestId last_id_ = 0;
  bool accepting_ = true;
  bool stopping_ = false;
  LoadSnapshot snapshot_;
  mutable bool walk_wanted_ = false;  // somebody read the snapshot since the last walk
  std::int32_t retry_after_ms_ = kDefaultRetryMs;
  LoadMeter meter_;

  std::thread thread_;  // last: it uses all of the above
};

// ---- any thread

Engine::Impl::Impl(Model& model, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      clock_(clock),
      limits_(scheduler_limits(model, options)),
      check_invariants_(options.check_invariants),
      blocks_(model.num_blocks(), model.block_size(), options.block_shuffle_seed),
      scheduler_(blocks_, limits_, clock, options.tenant_weights) {
  publish_load(false);
  thread_ = std::thread([this] { run(); });
}

Engine::Impl::~Impl() {
  end_all({ErrorCode::kUnavailable, "the server is shutting down"});
  {
    const std::lock_guard lock(mutex_);
    accepting_ = false;
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Result<RequestId> Engine::Impl::submit(GenerationRequest request, std::shared_ptr<TokenStream> stream) {
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  const std::int64_t max_tokens = request.stopping.max_tokens;
  // Here and not on the engine thread: stop strings may be many and long, and others' steps must not wait for them.
  auto rules = std::make_shared<const StopRules>(tokenizer_, std::move(request.stopping), request.skip_special);
  Submission submission{{}, std::move(rules), std::move(stream)};
  Request& out = submission.request;
  out.prompt = std::move(request.prompt);
  out.sampling = std::move(request.sampling);
  out.n = request.n;
  out.priority = request.priority;
  out.tenant = std::move(request.tenant);
  out.cache = std::move(request.cache);
  out.arrival = clock_.now();
  out.deadline = request.deadline;
  out.transport_deadline = request.transport_deadline;

  const std::lock_guard lock(mutex_);
  if (!accepting_) return Error{ErrorCode::kUnavailable, "the server is shutting down and takes no new requests"};
  const QueueLoad ahead{queue_.requests + inbox_.load.requests, queue_.prompt_tokens + inbox_.load.prompt_tokens};
  if (auto error = refusal(limits_, ahead, num_prompt, max_tokens, out.n)) {
    if (error->code == ErrorCode::kResourceExhausted) error->retry_after_ms = retry_after_ms_;
    return *std::move(error);
  }
  out.max_tokens = clipped_max_tokens(limits_, num_prompt, max_tokens);
  out.id = ++last_id_;
  ++num_open_;
  ++inbox_.load.requests;
  inbox_.load.prompt_tokens += num_prompt;
  inbox_.submissions.push_back(std::move(submission));
  wake_.notify_one();
  return last_id_;
}

void Engine::Impl::cancel(RequestId id, std::int32_t index) {
  const std::lock_guard lock(mutex_);
  inbox_.cancels.push_back({id, index});
  wake_.notify_one();
}

void Engine::Impl::flush_prefix_cache() {
  unpin(kFlush);
}

void Engine::Impl::unpin(RequestId id) {
  const std::lock_guard lock(mutex_);
  inbox_.cache_commands.push_back(id);
  wake_.notify_one();
}

void Engine::Impl::end_all(Error reason) {
  const std::lock_guard lock(mutex_);
  if (!inbox_.end_all) inbox_.end_all = std::move(reason);
  wake_.notify_one();
}

void Engine::Impl::stop_accepting() {
  const std::lock_guard lock(mutex_);
  accepting_ = false;
}

bool Engine::Impl::wait_idle(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return num_open_ == 0; };
  if (deadline != kNoDeadline) return idle_.wait_until(lock, deadline, idle);
  idle_.wait(lock, idle);
  return true;
}

LoadSnapshot Engine::Impl::load() const {
  const TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  walk_wanted_ = true;
  LoadSnapshot snapshot = snapshot_;
  snapshot.prompt_tokens_per_second = meter_.prompt_tokens_per_second(now);
  snapshot.output_tokens_per_second = meter_.output_tokens_per_second(now);
  snapshot.last_step_ms = meter_.last_step_ms();
  snapshot.mean_step_ms = meter_.mean_step_ms();
  return snapshot;
}

// ---- the engine thread

void Engine::Impl::run() {
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
    publish_load(plan.num_tokens > 0);
    delivery_.deliver(events, sampled_);
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
    std::swap(inbox_, taken_);
  }
  for (RequestId id : taken_.cache_commands) {
    if (id == kFlush) {
      scheduler_.flush_prefix_cache();
    } else {
      scheduler_.unpin(id);
    }
  }
  for (Submission& submission : taken_.submissions) add(submission);
  for (const auto& [id, index] : taken_.cancels) cancel_now(id, index);
  if (taken_.end_all) {
    for (RequestId id : delivery_.live_ids()) {
      delivery_.set_error(id, *taken_.end_all);
      scheduler_.end(id, finish_reason(taken_.end_all->code));
    }
  }
  taken_.clear();
  return true;
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
    delivery_.refuse(id, *std::move(error));
    settle(1);
  }
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
    const std::lock_guard lock(mutex_);
    queue_ = scheduler_.queue();  // what was started with this plan makes room in the queue at once
  }
  describe(plan);
  const Events* events = nullptr;
  try {
    compute(plan);
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
  if (observer_) {
    const SlotUse use = scheduler_.slot_use();
    record_.num_held_slots = use.held;
    record_.num_used_slots = use.used;
    observer_(record_);
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
  sampled_.assign(batch_.samples.size(), {});
  model_.sample(logits, batch_.samples, sampled_);
  record_.sample_ms = lap();
  tokens_.clear();
  for (const SampledToken& token : sampled_) {
    if (token.id < 0 || token.id >= model_.vocab_size()) throw std::runtime_error("a token outside of the vocabulary");
    tokens_.push_back(token.id);
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

// What the pool says of itself at every step; how many blocks are lost, if any, is known by walking over the tables and
// pins, which costs more: when nobody holds any, and else when asked for, at most once a second.
void Engine::Impl::count_blocks(const SchedulerCounts& counts, TimePoint now) {
  if (counts.running_requests == 0 || check_invariants_ || (walk_wanted_ && now - last_walk_ >= kWalkPeriod)) {
    walked_ = scheduler_.count_blocks();
    last_walk_ = now;
    walk_wanted_ = false;
  }
  snapshot_.blocks_total = blocks_.num_blocks();
  snapshot_.blocks_free = blocks_.num_free();
  snapshot_.blocks_cached = blocks_.num_cached();
  snapshot_.blocks_held = blocks_.num_held() - walked_.unaccounted;
  snapshot_.blocks_pinned = scheduler_.pins().num_blocks();
  snapshot_.blocks_unaccounted = walked_.unaccounted;
  snapshot_.num_pins = scheduler_.pins().size();
  snapshot_.num_pins_released = counts.num_pins_released;
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
  const double step_ms =
      record_.schedule_ms + record_.build_ms + record_.forward_ms + record_.sample_ms + record_.commit_ms;
  const TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  queue_ = scheduler_.queue();
  if (was_step) {
    meter_.record(now, step_ms, counts.prompt_tokens - snapshot_.prompt_tokens,
                  counts.output_tokens - snapshot_.output_tokens);
  }
  snapshot_.num_running = counts.running_requests;
  snapshot_.num_waiting = counts.waiting_requests;
  count_blocks(counts, now);
  if (queue_time > Duration::zero()) {
    retry_after_ms_ = static_cast<std::int32_t>(std::clamp(to_ms(queue_time), kMinRetryMs, kMaxRetryMs));
  }
  snapshot_.num_steps = counts.num_steps;
  snapshot_.prompt_tokens = counts.prompt_tokens;
  snapshot_.cached_tokens = counts.cached_tokens;
  snapshot_.output_tokens = counts.output_tokens;
  snapshot_.num_preemptions = counts.num_preemptions;
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
  end_all.reset();
  load = {};
}

// ---- Engine

Engine::Engine(Model& model, const Tokenizer& tokenizer, const Clock& clock, EngineOptions options)
    : impl_(std::make_unique<Impl>(model, tokenizer, clock, options)) {}

Engine::~Engine() = default;

Result<RequestId> Engine::submit(GenerationRequest request, std::shared_ptr<TokenStream> stream) {
  return impl_->submit(std::move(request), std::move(stream));
}

void Engine::cancel(RequestId id) {
  impl_->cancel(id, Impl::kAllIndices);
}

void Engine::cancel(RequestId id, std::int32_t index) {
  if (index >= 0) impl_->cancel(id, index);
}

void Engine::flush_prefix_cache() {
  impl_->flush_prefix_cache();
}

void Engine::unpin(RequestId id) {
  impl_->unpin(id);
}

LoadSnapshot Engine::load() const {
  return impl_->load();
}

void Engine::stop_accepting() {
  impl_->stop_accepting();
}

bool Engine::wait_idle(TimePoint deadline) {
  return impl_->wait_idle(deadline);
}

void Engine::end_all(Error reason) {
  impl_->end_all(std::move(reason));
}

void Engine::set_step_observer(std::function<void(const StepRecord&)> observer) {
  impl_->set_step_observer(std::move(observer));
}

std::int32_t Engine::max_context() const {
  return impl_->max_context();
}

}  // namespace folio
