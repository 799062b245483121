// commit() and fail(), counts, and the walks that prove the rest right.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace folio {

const Events& Scheduler::commit(const StepPlan& plan, std::span<const TokenId> tokens,
                                std::span<const FinishReason> verdicts) {
  FOLIO_CHECK(tokens.size() == static_cast<std::size_t>(plan.num_samples), "one token for each sample");
  FOLIO_CHECK(verdicts.empty() || verdicts.size() == tokens.size(), "one verdict for each token, or none at all");
  events_.clear();
  now_ = clock_.now();
  Step* done = plan.slices.empty() ? nullptr : &take_oldest(plan);
  finish_marked();
  std::int32_t sample = 0;
  for (const Slice& slice : plan.slices) {
    advance(slice, slice.num_logits > 0 ? sample++ : -1, tokens, verdicts);
  }
  close_requests();
  if (done != nullptr) release(*done);
  return events_;
}

const Events& Scheduler::fail(const StepPlan& plan) {
  events_.clear();
  now_ = clock_.now();
  Step& done = take_oldest(plan);
  finish_marked();
  for (const Slice& slice : plan.slices) {
    for (Sequence& sequence : slice.sequence->owner->sequences) finish(sequence, FinishReason::kError, -1);
  }
  close_requests();
  release(done);
  return events_;
}

Scheduler::Step& Scheduler::take_oldest(const StepPlan& plan) {
  Step& step = steps_[static_cast<std::size_t>(oldest_)];
  FOLIO_CHECK(num_in_flight_ > 0 && &plan == &step.plan, "steps commit in the order of their plans");
  oldest_ = (oldest_ + 1) % kMaxDepth;
  --num_in_flight_;
  ++counts_.num_steps;
  return step;
}

// Nothing in flight names the blocks and requests that were left with this step.
void Scheduler::release(Step& step) {
  for (const BlockTable& table : step.tables) num_retired_blocks_ -= table.size();
  step.tables.clear();
  step.requests.clear();
}

void Scheduler::finish_marked() {
  for (Sequence* sequence : marked_) finish(*sequence, sequence->ending, -1);
  marked_.clear();
}

void Scheduler::advance(const Slice& slice, std::int32_t sample, std::span<const TokenId> tokens,
                        std::span<const FinishReason> verdicts) {
  Sequence& sequence = *slice.sequence;
  if (sequence.state == SequenceState::kEnded) return;
  RequestState& owner = *sequence.owner;
  if (!owner.announced) {
    owner.announced = true;
    events_.started.push_back({owner.request.id, sequence.num_prompt_tokens(), 0});
  }
  count_computed(slice);
  if (slice.epoch == sequence.epoch) {
    FOLIO_CHECK(sequence.num_computed == slice.first, "slices of a sequence commit in order, without a gap");
    sequence.num_computed = slice.first + slice.count;
  }
  if (sample < 0) return;

  // A token of a sequence that was preempted in the meantime is as good as any: its K/V are gone, not what it said.
  const auto i = static_cast<std::size_t>(sample);
  --sequence.num_samples_in_flight;
  sequence.owes_token = false;
  sequence.tokens.push_back(tokens[i]);
  if (owner.num_output_tokens++ == 0) owner.first_token = now_;
  ++counts_.output_tokens;
  FinishReason reason = verdicts.empty() ? FinishReason::kNone : verdicts[i];
  if (reason == FinishReason::kNone && sequence.num_output_tokens() >= owner.request.max_tokens) {
    reason = FinishReason::kLength;
  }
  if (reason != FinishReason::kNone) {
    finish(sequence, reason, sample);
  } else {
    events_.sequences.push_back({owner.request.id, sequence.index, sample, reason});
  }
}

void Scheduler::count_computed(const Slice& slice) {
  Sequence& sequence = *slice.sequence;
  RequestState& owner = *sequence.owner;
  const std::int64_t end = slice.first + slice.count;
  const std::int64_t first_new = std::max(slice.first, sequence.num_once_computed);
  owner.num_recomputed_tokens += std::max<std::int64_t>(0, std::min(end, sequence.num_once_computed) - slice.first);
  const std::int64_t prompt_tokens = std::min(end, sequence.num_prompt_tokens()) - first_new;
  if (prompt_tokens > 0) {
    ++owner.num_chunks;
    counts_.prompt_tokens += prompt_tokens;
  }
  sequence.num_once_computed = std::max(end, sequence.num_once_computed);
}

void Scheduler::finish(Sequence& sequence, FinishReason reason, std::int32_t sample) {
  if (sequence.state == SequenceState::kEnded) return;
  if (sequence.state == SequenceState::kRunning) {
    std::erase(running_, &sequence);
    retire(sequence);
  } else {
    waiting_.erase(&sequence);
  }
  sequence.state = SequenceState::kEnded;
  RequestState& owner = *sequence.owner;
  events_.sequences.push_back({owner.request.id, sequence.index, sample, reason});
  if (--owner.num_live == 0) over_.push_back(owner.request.id);
}

// The sequence holds no blocks and no place any more.
void Scheduler::retire(Sequence& sequence) {
  RequestState& owner = *sequence.owner;
  owner.num_held_blocks -= sequence.blocks.size();
  if (--owner.num_running == 0) --counts_.running_requests;
  if (num_in_flight_ == 0) {
    sequence.blocks.clear();
    return;
  }
  num_retired_blocks_ += sequence.blocks.size();
  newest().tables.push_back(std::move(sequence.blocks));
}

void Scheduler::close_requests() {
  for (RequestId id : over_) {
    auto node = requests_.extract(id);
    RequestState& state = *node.mapped();
    events_.ended.push_back({id, static_cast<std::int64_t>(state.request.prompt.size()), 0, state.num_output_tokens,
                             state.num_recomputed_tokens, state.num_chunks, state.num_preemptions, state.peak_blocks,
                             state.request.arrival, state.first_scheduled, state.first_token, now_});
    if (!state.started) {
      --queue_.requests;
      queue_.prompt_tokens -= static_cast<std::int64_t>(state.request.prompt.size());
    }
    deadlines_.erase({state.request.deadline, id});
    if (num_in_flight_ > 0) newest().requests.push_back(std::move(node.mapped()));
  }
  over_.clear();
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
  return tables_;
}

std::optional<std::string> Scheduler::broken_invariant() {
  if (auto broken = blocks_.broken_invariant(tables())) return broken;
  std::size_t num_live = 0;
  std::int32_t num_running_requests = 0;
  QueueLoad queue;
  for (const auto& [id, state] : requests_) {
    std::int32_t num_running = 0;
    std::int32_t num_held = 0;
    for (const Sequence& sequence : state->sequences) {
      if (auto broken = broken_sequence(sequence)) {
        return "request " + std::to_string(id) + " index " + std::to_string(sequence.index) + ": " + *broken;
      }
      num_live += sequence.state != SequenceState::kEnded ? 1 : 0;
      num_running += sequence.state == SequenceState::kRunning ? 1 : 0;
      num_held += sequence.blocks.size();
    }
    num_running_requests += num_running > 0 ? 1 : 0;
    if (num_running != state->num_running) return "request " + std::to_string(id) + ": wrong count of running";
    if (num_held != state->num_held_blocks) return "request " + std::to_string(id) + ": wrong count of blocks";
    if (state->started) continue;
    ++queue.requests;
    queue.prompt_tokens += static_cast<std::int64_t>(state->request.prompt.size());
  }
  if (num_live != running_.size() + waiting_.size()) return "a live sequence is neither waiting nor running, or both";
  if (num_running_requests != counts_.running_requests) return "wrong count of running requests";
  if (queue.requests != queue_.requests || queue.prompt_tokens != queue_.prompt_tokens) return "wrong queue load";
  return broken_orders();
}

std::optional<std::string> Scheduler::broken_sequence(const Sequence& sequence) const {
  if (sequence.state != SequenceState::kRunning && sequence.blocks.size() != 0) return "it holds blocks, not running";
  if (sequence.state == SequenceState::kEnded) return std::nullopt;
  if (sequence.tokens.empty() != (sequence.admission == 0)) return "tokens and never admitted, or the reverse";
  if (sequence.num_computed > sequence.num_scheduled) return "computed more than was scheduled";
  if (sequence.num_scheduled > sequence.num_known()) return "scheduled more than is known";
  if (num_in_flight_ == 0 && sequence.num_computed != sequence.num_scheduled) return "scheduled, and no step in flight";
  if (num_in_flight_ == 0 && sequence.num_samples_in_flight != 0) return "a sample, and no step in flight";
  if (sequence.num_output_tokens() >= sequence.owner->request.max_tokens) return "over its max_tokens";
  if (blocks_.blocks_for(sequence.num_scheduled) > sequence.blocks.size()) return "its table is too short";
  return std::nullopt;
}

std::optional<std::string> Scheduler::broken_orders() const {
  const auto safer = [](const Sequence* a, const Sequence* b) { return policy::safer_than(*a, *b); };
  if (!std::is_sorted(running_.begin(), running_.end(), safer)) return "running: not in the victim order";
  for (const Sequence* s : running_) {
    if (s->state != SequenceState::kRunning) return "running: one that is not";
  }
  for (const Sequence* s : waiting_) {
    if (s->state != SequenceState::kWaiting) return "waiting: one that is not";
  }
  std::int32_t num_retired = 0;
  for (const Step& step : steps_) {
    for (const BlockTable& table : step.tables) num_retired += table.size();
  }
  if (num_retired != num_retired_blocks_) return "wrong count of retired blocks";
  return std::nullopt;
}

}  // namespace folio
