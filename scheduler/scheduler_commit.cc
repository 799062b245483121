// commit() and fail(): what was computed becomes tokens, ends and freed blocks.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace folio {

const Events& Scheduler::commit(const StepPlan& plan, std::span<const TokenId> tokens,
                                std::span<const FinishReason> verdicts) {
  FOLIO_CHECK(tokens.size() == plan.samples.size(), "one token for each sample");
  FOLIO_CHECK(verdicts.empty() || verdicts.size() == tokens.size(), "one verdict for each token, or none at all");
  events_.clear();
  now_ = clock_.now();
  Step* done = plan.slices.empty() ? nullptr : &take_oldest(plan);
  if (done != nullptr) {
    last_step_ = now_ - std::max(done->start, last_commit_);
    step_time_.observe(done->load, last_step_);
    last_commit_ = now_;
    refused_since_step_ = false;
  }
  finish_marked();
  std::int32_t num_scores = 0;
  for (const Slice& slice : plan.slices) {
    advance(slice, num_scores);
    num_scores += slice.num_scored;
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const PlannedSample& planned = plan.samples[i];
    advance_sample(planned, plan.slices[static_cast<std::size_t>(planned.slice)], static_cast<std::int32_t>(i),
                   tokens[i], verdicts.empty() ? FinishReason::kNone : verdicts[i]);
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
  for (const Slice& slice : plan.slices) finish_all(*slice.sequence->owner, FinishReason::kError);
  for (const PlannedCopy& copy : plan.copies) {  // also into the blocks of one that has no slice in this step
    const auto writes = [&](const Sequence* sequence) {
      return std::ranges::find(sequence->blocks.ids(), copy.to) != sequence->blocks.ids().end();
    };
    const auto found = std::ranges::find_if(running_, writes);
    if (found != running_.end()) finish_all(*(*found)->owner, FinishReason::kError);
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
  for (Sequence* sequence : marked_) finish(*sequence, sequence->ending);
  marked_.clear();
}

// The slice's K and V are in the cache. What it scored is its request's, though the sequence may be preempted or ended.
void Scheduler::advance(const Slice& slice, std::int32_t first_score) {
  Sequence& sequence = *slice.sequence;
  if (slice.num_scored > 0 && sequence.owner->num_live > 0) {
    announce(*sequence.owner);
    events_.scored.push_back({sequence.owner->request.id, first_score, slice.num_scored});
  }
  if (sequence.state == SequenceState::kEnded) return;
  announce(*sequence.owner);
  count_computed(slice);
  if (slice.epoch != sequence.epoch) return;
  FOLIO_CHECK(sequence.num_computed == slice.first, "slices of a sequence commit in order, without a gap");
  set_computed(sequence, slice.first + slice.count);
  // Nothing is to be sampled after the prompt, by none of its sequences.
  RequestState& owner = *sequence.owner;
  if (owner.request.max_tokens == 0 && sequence.num_computed == sequence.num_prompt_tokens()) {
    counts_.answered_prompt_tokens += sequence.num_prompt_tokens();
    finish_all(owner, FinishReason::kLength);
  }
}

// A token of a sequence that was preempted in the meantime is as good as any: its K/V are gone, not what it said.
void Scheduler::advance_sample(const PlannedSample& planned, const Slice& slice, std::int32_t sample, TokenId token,
                               FinishReason verdict) {
  Sequence& sequence = *planned.sequence;
  if (sequence.state == SequenceState::kEnded) return;
  RequestState& owner = *sequence.owner;
  announce(owner);
  if (&sequence != slice.sequence) {  // forked: what the slice computed is its own too
    sequence.num_once_computed = slice.first + slice.count;
    if (planned.epoch == sequence.epoch) set_computed(sequence, sequence.num_once_computed);
  }
  --sequence.num_samples_in_flight;
  sequence.owes_token = false;
  sequence.tokens.push_back(token);
  spend(sequence, kOutputWeight);
  SequenceEvent event{.request = owner.request.id, .index = sequence.index, .sample = sample};
  if (owner.num_output_tokens++ == 0) {
    owner.first_token = now_;
    event.ttft = now_ - owner.request.arrival;
    counts_.answered_prompt_tokens += sequence.num_prompt_tokens();
  }
  if (sequence.num_output_tokens() > 1) event.gap = now_ - sequence.last_token;
  sequence.last_token = now_;
  ++counts_.output_tokens;
  if (verdict == FinishReason::kNone && sequence.num_output_tokens() >= owner.request.max_tokens) {
    verdict = FinishReason::kLength;
  }
  event.finish = verdict;
  events_.sequences.push_back(event);
  if (verdict != FinishReason::kNone) end_sequence(sequence, verdict);
}

void Scheduler::announce(RequestState& owner) {
  if (std::exchange(owner.announced, true)) return;
  events_.started.push_back(
      {owner.request.id, static_cast<std::int64_t>(owner.request.prompt.size()), owner.num_cached_tokens});
}

// Indexes what became full, and pins the prompt if that was asked for.
void Scheduler::set_computed(Sequence& sequence, std::int64_t num_tokens) {
  sequence.num_computed = num_tokens;
  blocks_.seal(sequence.blocks, sequence.tokens, num_tokens);
  pin_prompt(sequence);
}

// Once all full blocks of the prompt are there, whoever computed them, if they are to be pinned.
void Scheduler::pin_prompt(Sequence& sequence) {
  RequestState& owner = *sequence.owner;
  const std::int64_t pin_ms = owner.request.cache.pin_ms;
  if (pin_ms == 0 || owner.pin_tried || !shares_cache(owner.request)) return;
  const auto num_blocks = static_cast<std::int32_t>(sequence.num_prompt_tokens() / limits_.block_size);
  if (num_blocks == 0 || sequence.blocks.num_sealed() < num_blocks) return;
  owner.pin_tried = true;
  const auto most_ms = std::chrono::duration_cast<std::chrono::milliseconds>(kNoDeadline - now_).count();
  const TimePoint until = pin_ms >= most_ms ? kNoDeadline : now_ + std::chrono::milliseconds(pin_ms);
  if (pins_.pin(owner.request.id, blocks_.content_of(sequence.blocks, num_blocks), until)) {
    owner.num_pinned_tokens = std::int64_t{num_blocks} * limits_.block_size;
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
    spend(sequence, static_cast<double>(prompt_tokens));
  }
  sequence.num_once_computed = std::max(end, sequence.num_once_computed);
}

// Without a new token.
void Scheduler::finish(Sequence& sequence, FinishReason reason) {
  if (sequence.state == SequenceState::kEnded) return;
  events_.sequences.push_back({.request = sequence.owner->request.id, .index = sequence.index, .finish = reason});
  end_sequence(sequence, reason);
}

void Scheduler::end_sequence(Sequence& sequence, FinishReason reason) {
  if (sequence.state == SequenceState::kRunning) {
    // Nobody is to build on what a failed sequence computed, or on what it was computed from.
    if (reason == FinishReason::kError) {
      blocks_.forget(sequence.blocks);
      pins_.release_gone();
    }
    std::erase(running_, &sequence);
    retire(sequence);
  } else {
    queue_.erase(sequence);
  }
  sequence.state = SequenceState::kEnded;
  RequestState& owner = *sequence.owner;
  owner.finish = std::max(owner.finish, reason);
  if (--owner.num_live == 0) over_.push_back(owner.request.id);
}

void Scheduler::finish_all(RequestState& owner, FinishReason reason) {
  for (Sequence& sequence : owner.sequences) finish(sequence, reason);
}

// The sequence holds no blocks and no place any more.
void Scheduler::retire(Sequence& sequence) {
  RequestState& owner = *sequence.owner;
  refund(sequence);
  if (--owner.num_running == 0) --counts_.running_requests;
  if (!copies_.empty()) {
    std::erase_if(copies_, [&](const PlannedCopy& copy) {
      return std::ranges::find(sequence.blocks.ids(), copy.to) != sequence.blocks.ids().end();
    });
    if (copies_.empty()) sources_.clear();
  }
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
    events_.ended.push_back({.request = id,
                             .finish = state.finish,
                             .prompt_tokens = static_cast<std::int64_t>(state.request.prompt.size()),
                             .cached_tokens = state.num_cached_tokens,
                             .output_tokens = state.num_output_tokens,
                             .pinned_tokens = state.num_pinned_tokens,
                             .recomputed_tokens = state.num_recomputed_tokens,
                             .num_chunks = state.num_chunks,
                             .num_preemptions = state.num_preemptions,
                             .peak_blocks = state.peak_blocks,
                             .arrival = state.request.arrival,
                             .first_scheduled = state.first_scheduled,
                             .first_token = state.first_token,
                             .end = now_});
    if (!state.started) {
      --queue_load_.requests;
      queue_load_.prompt_tokens -= static_cast<std::int64_t>(state.request.prompt.size());
    }
    deadlines_.erase({state.request.deadline, id});
    transport_deadlines_.erase({state.request.transport_deadline, id});
    queue_.leave(*std::exchange(state.tenant, nullptr));
    blocks_.close_domain(state.domain);
    if (num_in_flight_ > 0) newest().requests.push_back(std::move(node.mapped()));
  }
  over_.clear();
}

}  // namespace folio
