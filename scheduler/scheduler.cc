// Arrivals and ends; schedule() is in scheduler_plan.cc and scheduler_admit.cc, commit() in scheduler_commit.cc.
#include "scheduler/scheduler.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "base/check.h"

namespace folio {

Scheduler::Scheduler(BlockManager& blocks, const SchedulerLimits& limits, const Clock& clock,
                     std::map<std::string, double> tenant_weights)
    : blocks_(blocks),
      limits_(limits),
      clock_(clock),
      queue_(std::move(tenant_weights)),
      pins_(blocks, limits.max_pinned_blocks),
      sources_(blocks.make_table({})) {
  FOLIO_CHECK(limits.block_size == blocks.block_size() && limits.num_blocks == blocks.num_blocks(), "one pool");
  FOLIO_CHECK(limits.max_num_seqs >= 1 && limits.max_batch_tokens >= 1 && limits.max_prefill_chunk >= 0 &&
                  limits.max_context >= 2,
              "limits within their ranges");
}

Scheduler::~Scheduler() = default;

std::optional<Error> Scheduler::submit(Request request) {
  now_ = clock_.now();
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  if (auto error = refusal(limits_, queue_load_, num_prompt, request.max_tokens, request.n)) return error;
  const bool shares = shares_cache(request);
  const bool finds = shares && !request.wants_scores();
  const std::int64_t num_uncached =
      num_prompt - (finds ? blocks_.num_cached_tokens(request.cache.salt, request.prompt) : 0);
  if (auto error = cannot_be_in_time(request, num_uncached)) {
    // What a step takes is learnt from steps alone: where nothing runs, the second in a row is let in to see.
    if (!running_.empty() || queue_.size() > 0 || !std::exchange(refused_since_step_, true)) return error;
  }
  FOLIO_CHECK(request.id != 0 && !requests_.contains(request.id), "request ids are unique");
  request.max_tokens = clipped_max_tokens(limits_, num_prompt, request.max_tokens);

  auto state = std::make_unique<RequestState>();
  state->request = std::move(request);
  const Request& asked = state->request;
  state->arrival = ++num_arrivals_;
  state->deadline = std::min(asked.deadline, asked.transport_deadline);
  state->tenant = &queue_.join(asked.tenant);
  state->num_uncached_tokens = num_uncached;
  state->domain = shares ? blocks_.open_domain(asked.cache.salt) : blocks_.open_private_domain();
  state->num_live = asked.n;
  state->sequences.reserve(static_cast<std::size_t>(asked.n));
  for (std::int32_t index = 0; index < asked.n; ++index) {
    state->sequences.emplace_back(*state, index, blocks_.make_table({}));
    queue_.push(state->sequences.back(), now_);
  }
  ++queue_load_.requests;
  queue_load_.prompt_tokens += num_prompt;
  if (asked.deadline != kNoDeadline) deadlines_.emplace(asked.deadline, asked.id);
  if (asked.transport_deadline != kNoDeadline) transport_deadlines_.emplace(asked.transport_deadline, asked.id);
  requests_.emplace(asked.id, std::move(state));
  return std::nullopt;
}

void Scheduler::end(RequestId id, FinishReason reason) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  for (Sequence& sequence : found->second->sequences) mark(sequence, reason);
}

void Scheduler::end(RequestId id, std::int32_t index, FinishReason reason) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || index < 0 || index >= found->second->request.n) return;
  mark(found->second->sequences[static_cast<std::size_t>(index)], reason);
}

void Scheduler::mark(Sequence& sequence, FinishReason reason) {
  if (sequence.state == SequenceState::kEnded || sequence.ending != FinishReason::kNone) return;
  sequence.ending = reason;
  marked_.push_back(&sequence);
}

void Scheduler::flush_prefix_cache() {
  blocks_.flush(pins_.holds_by_block());
}

void Scheduler::unpin(RequestId id) {
  if (id == 0) {
    pins_.release_all();
  } else {
    pins_.release(id);
  }
}

// By the least time: for places, for blocks and for other tenants it may wait longer, and what was preempted may have
// to be computed again; nobody knows. One prompt takes at most half of a step while others wait: so of those before it
// in its tenant one, the longest, may still be under way when it is done, and only half of the steps' tokens went to
// that one meanwhile.
std::optional<Error> Scheduler::cannot_be_in_time(const Request& request, std::int64_t num_uncached) const {
  TimePoint deadline = request.deadline;
  if (request.transport_deadline != kNoDeadline) {
    deadline = std::min(deadline, request.transport_deadline - kTransportMargin);
  }
  if (deadline == kNoDeadline || !step_time_.is_ready()) return std::nullopt;
  const std::int64_t num_own = std::max<std::int64_t>(num_uncached, 1);
  std::int64_t num_ahead = 0;
  std::int64_t longest = 0;
  const auto look_at = [&](const Sequence& sequence, std::int64_t num_tokens) {
    if (sequence.owner->request.tenant != request.tenant) return;
    if (std::tuple(-sequence.level, -sequence.num_agings, sequence.owner->deadline) >
        std::tuple(-std::int64_t{request.priority}, 0, deadline)) {
      return;
    }
    num_ahead += num_tokens;
    longest = std::max(longest, num_tokens);
  };
  for (const Sequence* sequence : running_) {
    if (sequence->num_pending() > 1) look_at(*sequence, sequence->num_pending());
  }
  queue_.for_each([&](const Sequence& sequence) {
    if (sequence.index == 0 && sequence.admission == 0) look_at(sequence, sequence.owner->num_uncached_tokens);
  });
  num_ahead -= longest - std::min(longest, num_own);
  const Duration expected = predicted_prefill(num_ahead + num_own);
  if (expected <= deadline - now_) return std::nullopt;
  const auto ms = [](Duration d) { return std::to_string(std::max<std::int64_t>(0, std::llround(to_ms(d)))); };
  return Error{ErrorCode::kDeadlineExceeded, "the first token is expected in " + ms(expected) + " ms, after " +
                                                 std::to_string(num_ahead) + " prompt tokens of others; the time " +
                                                 "limit leaves " + ms(deadline - now_) + " ms"};
}

// Steps as full as they may be beside the outputs that run now.
Duration Scheduler::predicted_prefill(std::int64_t num_tokens) const {
  StepLoad load;
  for (const Sequence* sequence : running_) {
    if (sequence->num_pending() == 1) load.add_slice(sequence->num_scheduled, 1, 1);
  }
  const std::int64_t room =
      std::clamp<std::int64_t>(limits_.max_batch_tokens, 1, step_time_.trusted_rows()) - load.rows;
  const std::int64_t chunk =
      std::min(num_tokens, fitting(load, load.rows > 0, {0, false}, std::max<std::int64_t>(room, 1), true));
  const auto step = [&](std::int64_t count) {
    StepLoad with = load;
    with.add_slice(0, count, 1);
    return step_time_.predict(with);
  };
  const std::int64_t rest = num_tokens % chunk;
  return step(chunk) * (num_tokens / chunk) + (rest > 0 ? step(rest) : Duration::zero());
}

Duration Scheduler::predicted_queue_time() const {
  if (!step_time_.is_ready() || queue_load_.prompt_tokens == 0) return Duration::zero();
  return predicted_prefill(queue_load_.prompt_tokens);
}

// How many of `count` tokens from here on a step of this load has room for within the target.
std::int64_t Scheduler::fitting(const StepLoad& load, bool has_outputs, ChunkStart start, std::int64_t count,
                                bool at_least_some) const {
  if (limits_.target_itl == Duration::zero() || !has_outputs) return count;
  const auto fits = [&](std::int64_t more) {
    StepLoad with = load;
    with.add_slice(start.first, more, start.scores ? more : 1);
    return step_time_.predict(with) <= limits_.target_itl;
  };
  std::int64_t low = at_least_some ? std::min(count, kMinChunk) : 0;
  std::int64_t high = std::max(low, std::min(count, step_time_.trusted_rows() - load.rows));
  while (low < high) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (fits(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

SchedulerCounts Scheduler::counts() const {
  SchedulerCounts counts = counts_;
  counts.waiting_requests = static_cast<std::int32_t>(requests_.size()) - counts.running_requests;
  return counts;
}

std::span<const BlockTable* const> Scheduler::tables() {
  tables_.clear();
  for (const Sequence* sequence : running_) tables_.push_back(&sequence->blocks);
  for (const Step& step : steps_) {
    for (const BlockTable& table : step.tables) tables_.push_back(&table);
  }
  tables_.push_back(&sources_);
  pins_.append_tables(tables_);
  return tables_;
}

SlotUse Scheduler::slot_use() {
  SlotUse use;
  tables_.clear();
  for (const Sequence* sequence : running_) tables_.push_back(&sequence->blocks);
  blocks_.for_each_distinct(tables_, [&](std::size_t table, std::size_t block) {
    const std::int64_t before = static_cast<std::int64_t>(block) * limits_.block_size;
    use.held += limits_.block_size;
    use.used += std::clamp<std::int64_t>(running_[table]->num_computed - before, 0, limits_.block_size);
  });
  return use;
}

}  // namespace folio
