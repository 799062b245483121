#include "engine/engine.h"

#include <string>

#include "base/check.h"
#include "engine/engine_impl.h"

namespace folio {

Engine::Impl::Impl(Model& model, const Tokenizer& tokenizer, const Clock& clock, const EngineOptions& options)
    : model_(model),
      tokenizer_(tokenizer),
      clock_(clock),
      limits_(scheduler_limits(model, options)),
      check_invariants_(options.check_invariants),
      depth_(model.depth()),
      blocks_(model.num_blocks(), model.block_size(), options.block_shuffle_seed),
      scheduler_(blocks_, limits_, clock, options.tenant_weights) {
  FOLIO_CHECK(depth_ >= 1 && depth_ <= Scheduler::kMaxDepth, "a model's depth is 1 or 2");
  publish_load(nullptr);
  thread_ = std::thread([this] { run(); });
}

Engine::Impl::~Impl() {
  end_all({ErrorCode::kUnavailable, "the server is shutting down"});
  stop_accepting();
  {
    const std::lock_guard lock(mutex_);
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
  out.arrival = request.arrival == TimePoint{} ? clock_.now() : request.arrival;
  out.deadline = request.deadline;
  out.transport_deadline = request.transport_deadline;

  const std::lock_guard lock(mutex_);
  if (refusal_) return *refusal_;
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
  const std::lock_guard lock(mutex_);
  inbox_.cache_commands.emplace_back(std::nullopt);
  wake_.notify_one();
}

void Engine::Impl::unpin(RequestId id) {
  const std::lock_guard lock(mutex_);
  inbox_.cache_commands.emplace_back(id);
  wake_.notify_one();
}

void Engine::Impl::dump_blocks(BlockDumpReceiver done) {
  const std::lock_guard lock(mutex_);
  inbox_.dumps.push_back(std::move(done));
  wake_.notify_one();
}

void Engine::Impl::end_all(Error reason) {
  const std::lock_guard lock(mutex_);
  if (!inbox_.end_all) inbox_.end_all = std::move(reason);
  wake_.notify_one();
}

void Engine::Impl::stop_accepting() {
  const std::lock_guard lock(mutex_);
  if (!refusal_) refusal_ = {ErrorCode::kUnavailable, "the server is shutting down and takes no new requests"};
}

bool Engine::Impl::wait_idle(TimePoint deadline) {
  std::unique_lock lock(mutex_);
  const auto idle = [this] { return num_open_ == 0 && num_in_flight_ == 0; };
  if (deadline != kNoDeadline) return idle_.wait_until(lock, deadline, idle);
  idle_.wait(lock, idle);
  return true;
}

LoadSnapshot Engine::Impl::load() const {
  walk_wanted_ = true;
  const TimePoint now = clock_.now();
  const std::lock_guard lock(mutex_);
  LoadSnapshot snapshot = snapshot_;
  snapshot.num_waiting += inbox_.load.requests;
  snapshot.prompt_tokens_per_second = meter_.prompt_tokens_per_second(now);
  snapshot.output_tokens_per_second = meter_.output_tokens_per_second(now);
  snapshot.last_step_ms = meter_.last_step_ms();
  snapshot.mean_step = meter_.mean_step();
  return snapshot;
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

void Engine::dump_blocks(BlockDumpReceiver done) {
  impl_->dump_blocks(std::move(done));
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

void Engine::add_observer(std::shared_ptr<EngineObserver> observer) {
  impl_->add_observer(std::move(observer));
}

SlotUse Engine::slot_use() {
  return impl_->slot_use();
}

std::int32_t Engine::max_context() const {
  return impl_->max_context();
}

}  // namespace folio
