// submit, end and schedule(); the other half is scheduler_commit.cc.
#include "scheduler/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace folio {

Scheduler::Scheduler(BlockManager& blocks, const SchedulerLimits& limits, const Clock& clock)
    : blocks_(blocks), limits_(limits), clock_(clock) {
  FOLIO_CHECK(limits.block_size == blocks.block_size() && limits.num_blocks == blocks.num_blocks(), "one pool");
  FOLIO_CHECK(limits.max_num_seqs >= 1 && limits.max_batch_tokens >= 1 && limits.max_prefill_chunk >= 0 &&
                  limits.max_context >= 2,
              "limits within their ranges");
}

Scheduler::~Scheduler() = default;

std::optional<Error> Scheduler::submit(Request request) {
  const auto num_prompt = static_cast<std::int64_t>(request.prompt.size());
  if (auto error = refusal(limits_, queue_, num_prompt, request.max_tokens, request.n)) return error;
  FOLIO_CHECK(request.id != 0 && !requests_.contains(request.id), "request ids are unique");
  request.max_tokens = clipped_max_tokens(limits_, num_prompt, request.max_tokens);

  auto state = std::make_unique<RequestState>();
  state->request = std::move(request);
  state->arrival = ++num_arrivals_;
  state->num_live = state->request.n;
  state->sequences.reserve(static_cast<std::size_t>(state->request.n));
  for (std::int32_t index = 0; index < state->request.n; ++index) {
    state->sequences.emplace_back(*state, index, blocks_.make_table());
    waiting_.insert(&state->sequences.back());
  }
  ++queue_.requests;
  queue_.prompt_tokens += num_prompt;
  if (state->request.deadline != kNoDeadline) deadlines_.emplace(state->request.deadline, state->request.id);
  requests_.emplace(state->request.id, std::move(state));
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

void Scheduler::mark_expired() {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now_) {
    end(deadlines_.begin()->second, FinishReason::kDeadline);
    deadlines_.erase(deadlines_.begin());
  }
}

const StepPlan& Scheduler::schedule() {
  FOLIO_CHECK(num_in_flight_ < kMaxDepth, "a step is committed before one more is planned");
  now_ = clock_.now();
  ++num_schedules_;
  granted_.clear();
  num_granted_ = 0;
  num_promised_ = 0;
  mark_expired();
  if (!marked_.empty()) return nothing_;
  grant_outputs();
  if (!marked_.empty()) return nothing_;  // the first is alone and cannot grow
  grant_chunks();
  return marked_.empty() ? emit_plan() : nothing_;
}

void Scheduler::grant(Sequence& sequence, std::int64_t count) {
  if (sequence.num_granted == 0) granted_.push_back(&sequence);
  sequence.num_granted += static_cast<std::int32_t>(count);
  num_granted_ += static_cast<std::int32_t>(count);
}

bool Scheduler::make_room(Sequence& sequence, std::int64_t num_tokens) {
  const std::int32_t before = sequence.blocks.size();
  if (!blocks_.make_room(sequence.blocks, num_tokens)) return false;
  RequestState& owner = *sequence.owner;
  owner.num_held_blocks += sequence.blocks.size() - before;
  owner.peak_blocks = std::max(owner.peak_blocks, owner.num_held_blocks);
  return true;
}

// Running sequences with one position to compute, in the victim order. There are never more running sequences than the
// budget has tokens, so each gets its one, and one that has a longer chunk to compute finds a token left too.
void Scheduler::grant_outputs() {
  for (Sequence* sequence : running_) sequence->num_granted = 0;
  for (std::size_t i = 0; i < running_.size(); ++i) {  // running_ may get shorter from behind
    if (running_[i]->num_pending() == 1 && grow(i)) grant(*running_[i], 1);
  }
}

// Room for one more token of the i-th running sequence, taken from those behind it if need be. False: not in this step.
bool Scheduler::grow(std::size_t i) {
  Sequence& sequence = *running_[i];
  const std::int64_t num_tokens = sequence.num_scheduled + 1;
  while (!make_room(sequence, num_tokens)) {
    const std::int32_t missing = blocks_.blocks_for(num_tokens) - sequence.blocks.size();
    if (blocks_.num_free() + num_retired_blocks_ - num_promised_ >= missing) {  // they come with the step in flight
      num_promised_ += missing;
      return false;
    }
    const std::size_t victim = find_victim(i);
    if (victim == i) {
      if (running_.size() == 1 && num_in_flight_ == 0) mark(sequence, FinishReason::kLength);
      return false;
    }
    preempt(victim);
  }
  return true;
}

// The last in the victim order that may be taken from; the taker itself when there is none behind it.
std::size_t Scheduler::find_victim(std::size_t taker) const {
  for (std::size_t i = running_.size() - 1; i > taker; --i) {
    if (policy::may_take(*running_[taker], taker == 0, *running_[i])) return i;
  }
  return taker;
}

// By recompute: the blocks go back, prompt and outputs so far are computed again as chunks when it is admitted again.
void Scheduler::preempt(std::size_t i) {
  Sequence& sequence = *running_[i];
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i));
  retire(sequence);
  sequence.state = SequenceState::kWaiting;
  sequence.num_computed = sequence.num_scheduled = 0;
  sequence.preempted_at = num_schedules_;
  ++sequence.epoch;
  num_granted_ -= sequence.num_granted;
  sequence.num_granted = 0;
  waiting_.insert(&sequence);
  ++sequence.owner->num_preemptions;
  ++counts_.num_preemptions;
}

// Chunks of running sequences and newcomers, in the start order. While others wait one takes at most half of the
// tokens; what those behind it have no use for goes back to it. The first who cannot be admitted keeps those behind it
// waiting.
void Scheduler::grant_chunks() {
  chunks_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->num_pending() > 1) chunks_.push_back(sequence);
  }
  std::sort(chunks_.begin(), chunks_.end(), policy::StartOrder());
  const std::int32_t cap = limits_.max_prefill_chunk > 0 ? limits_.max_prefill_chunk : limits_.max_batch_tokens;
  const bool crowded = chunks_.size() + waiting_.size() > 1;
  const std::int32_t share = crowded ? std::min(cap, std::max(1, num_left() / 2)) : cap;
  const std::size_t first_chunk = granted_.size();
  std::size_t next_running = 0;
  bool admitting = true;
  while (num_left() > 0) {
    Sequence* sequence = next_for_chunk(next_running, admitting);
    if (sequence == nullptr) break;
    grant(*sequence, std::min<std::int64_t>({sequence->num_pending(), share, num_left()}));
  }
  for (std::size_t i = first_chunk; i < granted_.size() && num_left() > 0; ++i) {
    Sequence& sequence = *granted_[i];
    const std::int64_t wanted = std::min<std::int64_t>(sequence.num_pending(), cap) - sequence.num_granted;
    if (sequence.num_granted > 0) grant(sequence, std::min<std::int64_t>(wanted, num_left()));
  }
}

Sequence* Scheduler::next_for_chunk(std::size_t& next_running, bool& admitting) {
  // One that gave its place to a newcomer is passed over.
  while (next_running < chunks_.size() && chunks_[next_running]->state != SequenceState::kRunning) ++next_running;
  Sequence* running = next_running < chunks_.size() ? chunks_[next_running] : nullptr;
  if (admitting && !waiting_.empty()) {
    Sequence* newcomer = *waiting_.begin();
    if (running == nullptr || policy::starts_before(*newcomer, *running)) {
      if (admit(*newcomer)) return newcomer;
      admitting = false;
      return next_for_chunk(next_running, admitting);
    }
  }
  if (running != nullptr) ++next_running;
  return running;
}

// A place among the running and blocks for all tokens so far, or neither.
bool Scheduler::admit(Sequence& sequence) {
  // Preempted a moment ago, or its newest token is still on its way.
  if (sequence.preempted_at == num_schedules_ || sequence.num_samples_in_flight > 0) return false;
  const std::int32_t num_blocks = blocks_.blocks_for(sequence.num_tokens());
  if (num_blocks > blocks_.num_blocks()) {  // it grew to the whole pool before it was preempted
    mark(sequence, FinishReason::kLength);
    return false;
  }
  if (!take_places(sequence, num_blocks)) return false;
  if (!make_room(sequence, sequence.num_tokens())) return false;  // what it took comes with the step in flight

  waiting_.erase(&sequence);
  RequestState& owner = *sequence.owner;
  if (!owner.started) {
    owner.started = true;
    owner.first_scheduled = now_;
    --queue_.requests;
    queue_.prompt_tokens -= sequence.num_prompt_tokens();
  }
  if (sequence.admission == 0) {
    sequence.admission = ++num_admissions_;
    sequence.tokens = owner.request.prompt;
  } else {
    sequence.owes_token = true;
  }
  sequence.state = SequenceState::kRunning;
  sequence.num_granted = 0;
  if (owner.num_running++ == 0) ++counts_.running_requests;
  const auto place = std::upper_bound(running_.begin(), running_.end(), &sequence,
                                      [](const Sequence* a, const Sequence* b) { return policy::safer_than(*a, *b); });
  running_.insert(place, &sequence);
  return true;
}

// Makes sure of one place and of num_blocks blocks (free now or with the step in flight) by preempting running
// sequences of a strictly lower priority, the last first; nobody is preempted when that would not be enough.
bool Scheduler::take_places(const Sequence& sequence, std::int32_t num_blocks) {
  const auto max_running = static_cast<std::size_t>(std::min(limits_.max_num_seqs, limits_.max_batch_tokens));
  std::int32_t available = blocks_.num_free() + num_retired_blocks_ - num_promised_;
  std::size_t num_running = running_.size();
  std::size_t num_victims = 0;
  while (available < num_blocks || num_running >= max_running) {
    if (num_victims == running_.size()) return false;
    const Sequence& victim = *running_[running_.size() - 1 - num_victims];
    if (!policy::may_replace(sequence, victim)) return false;
    available += victim.blocks.size();
    --num_running;
    ++num_victims;
  }
  for (; num_victims > 0; --num_victims) preempt(running_.size() - 1);
  return true;
}

const StepPlan& Scheduler::emit_plan() {
  if (num_granted_ == 0) return nothing_;
  ++num_in_flight_;
  StepPlan& plan = newest().plan;
  plan.clear();
  plan.step = ++num_planned_;
  for (Sequence* sequence : granted_) {
    if (sequence->num_granted == 0) continue;  // preempted after all
    const bool reaches_end = sequence->num_granted == sequence->num_known() - sequence->num_scheduled;
    Slice slice{sequence, sequence->num_scheduled, sequence->num_granted, reaches_end ? 1 : 0, -1, sequence->epoch};
    if (slice.first >= sequence->num_tokens()) slice.in_flight_row = sequence->sample_row;
    sequence->num_scheduled += slice.count;
    if (reaches_end) {
      ++sequence->num_samples_in_flight;
      sequence->sample_row = plan.num_samples++;
    }
    plan.num_tokens += slice.count;
    plan.slices.push_back(slice);
  }
  return plan;
}

}  // namespace folio
