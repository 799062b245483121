// schedule(): who gets which positions in the next step, and the blocks for them.
#include <algorithm>
#include <limits>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace folio {

const StepPlan& Scheduler::schedule() {
  FOLIO_CHECK(num_in_flight_ < kMaxDepth, "a step is committed before one more is planned");
  now_ = clock_.now();
  ++num_schedules_;
  granted_.clear();
  num_granted_ = 0;
  num_outputs_ = 0;
  num_promised_ = 0;
  load_ = {};
  pins_.release_expired(now_);
  queue_.age(now_,
             running_.empty() ? std::numeric_limits<std::int32_t>::min() : running_.front()->owner->request.priority);
  mark_expired();
  if (!marked_.empty()) return nothing_;
  grant_outputs();
  if (!marked_.empty()) return nothing_;  // the first is alone and cannot grow
  grant_chunks();
  if (num_granted_ > 0) mark_expired();  // who would be told too late if this step came first
  return marked_.empty() ? emit_plan() : nothing_;
}

void Scheduler::mark_expired() {
  const auto expire = [this](std::set<std::pair<TimePoint, RequestId>>& deadlines, TimePoint now) {
    for (; !deadlines.empty() && deadlines.begin()->first <= now; deadlines.erase(deadlines.begin())) {
      end(deadlines.begin()->second, FinishReason::kDeadline);
    }
  };
  expire(deadlines_, now_);
  expire(transport_deadlines_, now_ + kTransportMargin + until_next_schedule());
}

// The step in flight, or that of the plan so far, is over before anybody else can be told anything.
Duration Scheduler::until_next_schedule() const {
  if (num_in_flight_ == 0 && num_granted_ == 0) return Duration::zero();
  if (!step_time_.is_ready()) return last_step_;
  Duration longest = num_granted_ > 0 ? step_time_.predict(load_) : Duration::zero();
  if (num_in_flight_ > 0) longest = std::max(longest, step_time_.predict(newest().load));
  return longest + 2 * step_time_.usual_error();
}

void Scheduler::grant(Sequence& sequence, std::int64_t count) {
  if (sequence.num_granted == 0) granted_.push_back(&sequence);
  const std::int64_t first = sequence.num_scheduled + sequence.num_granted;
  const std::int64_t num_scored =
      sequence.num_to_score(first + count) - std::max(sequence.num_to_score(first), sequence.owner->num_scored);
  load_.add_slice(first, count, (sequence.num_granted == 0 ? 1 : 0) + std::max<std::int64_t>(num_scored, 0));
  sequence.num_granted += static_cast<std::int32_t>(count);
  num_granted_ += static_cast<std::int32_t>(count);
}

void Scheduler::note_peak(RequestState& owner) {
  std::int32_t num_blocks = owner.sequences.front().blocks.size();
  if (owner.request.n > 1) {
    tables_.clear();
    for (const Sequence& sequence : owner.sequences) tables_.push_back(&sequence.blocks);
    num_blocks = blocks_.num_distinct(tables_);
  }
  owner.peak_blocks = std::max(owner.peak_blocks, num_blocks);
}

// ---- running outputs

// Running sequences with one position to compute, in the victim order. There are never more running sequences than the
// budget has tokens, so each gets its one, and one that has a longer chunk to compute finds a token left too.
void Scheduler::grant_outputs() {
  for (Sequence* sequence : running_) sequence->num_granted = 0;
  for (std::size_t i = 0; i < running_.size(); ++i) {  // running_ may get shorter from behind
    if (running_[i]->num_pending() == 1 && grow(i)) grant(*running_[i], 1);
  }
  num_outputs_ = granted_.size();
  for (Sequence* sequence : granted_) {  // once for all of a request's sequences
    if (std::exchange(sequence->owner->grew, false)) note_peak(*sequence->owner);
  }
}

// Room for one more token of the i-th running sequence, taken from those behind it if need be. False: not in this step.
bool Scheduler::grow(std::size_t i) {
  Sequence& sequence = *running_[i];
  for (;;) {
    const std::int32_t missing = num_missing(sequence);
    if (missing <= blocks_.num_available()) {
      if (missing > 0) take_next_slot(sequence);
      return true;
    }
    if (blocks_.num_available() + num_coming() - num_promised_ >= missing) {  // they come with a step in flight
      num_promised_ += missing;
      return false;
    }
    const std::size_t victim = find_victim(i);
    if (victim != i) {
      preempt(victim);
    } else if (i == 0 && num_in_flight_ == 0 && pins_.release_oldest()) {
      ++counts_.num_pins_released;
    } else {
      if (running_.size() == 1 && num_in_flight_ == 0) mark(sequence, FinishReason::kLength);
      return false;
    }
  }
}

// Blocks that the sequence's next position wants: the next one, or its own copy of one that it shares.
std::int32_t Scheduler::num_missing(const Sequence& sequence) const {
  const std::int64_t position = sequence.num_scheduled;
  if (blocks_.blocks_for(position + 1) > sequence.blocks.size()) return 1;
  return blocks_.is_writable(sequence.blocks, position, sources_) ? 0 : 1;
}

void Scheduler::take_next_slot(Sequence& sequence) {
  const std::int64_t position = sequence.num_scheduled;
  if (blocks_.blocks_for(position + 1) > sequence.blocks.size()) {
    blocks_.make_room(sequence.blocks, position + 1);
  } else {
    const BlockId from = blocks_.make_writable(sequence.blocks, position, sources_);
    copies_.push_back({from, sequence.blocks.ids()[static_cast<std::size_t>(position / limits_.block_size)]});
  }
  sequence.owner->grew = true;
}

// Into tables_: what is left with the steps in flight.
void Scheduler::gather_retired() {
  tables_.clear();
  if (num_retired_blocks_ == 0) return;
  for (const Step& step : steps_) {
    for (const BlockTable& table : step.tables) tables_.push_back(&table);
  }
}

// Blocks that are available once the steps in flight were committed, and are not yet.
std::int32_t Scheduler::num_coming() {
  gather_retired();
  return tables_.empty() ? 0 : blocks_.num_released_by(tables_);
}

// The last in the victim order that may be taken from; the taker itself when there is none behind it.
std::size_t Scheduler::find_victim(std::size_t taker) const {
  for (std::size_t i = running_.size() - 1; i > taker; --i) {
    if (policy::may_take(*running_[taker], taker == 0, *running_[i])) return i;
  }
  return taker;
}

// The blocks go back, what is indexed of them with its content. When the sequence is admitted again, it gets what is
// still there, and the rest of prompt and outputs so far is computed again as chunks.
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
  queue_.push(sequence, now_);
  ++sequence.owner->num_preemptions;
  ++counts_.num_preemptions;
}

// ---- chunks

// Chunks of running sequences and newcomers, in the start order. While others wait one takes at most half of the
// tokens; what those behind it have no use for goes back to it. The first who cannot be admitted keeps those behind it
// waiting. The first in the victim order advances in any case.
void Scheduler::grant_chunks() {
  chunks_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->num_pending() > 1) chunks_.push_back(sequence);
  }
  std::sort(chunks_.begin(), chunks_.end(), policy::StartOrder());
  const std::int64_t cap = limits_.max_prefill_chunk > 0 ? limits_.max_prefill_chunk : limits_.max_batch_tokens;
  const bool crowded = chunks_.size() + queue_.size() > 1;
  std::int64_t share = 0;
  std::size_t next_running = 0;
  bool admitting = true;
  while (Sequence* sequence = next_for_chunk(next_running, admitting)) {
    const std::int64_t room = chunk_room(*sequence, sequence->num_scheduled);
    if (room <= 0) break;
    if (share == 0) share = std::min(cap, crowded ? std::max<std::int64_t>(1, room / 2) : room);
    grant(*sequence, std::min({sequence->num_pending(), share, room}));
  }
  queue_.take_back();
  for (std::size_t i = num_outputs_; i < granted_.size(); ++i) {
    Sequence& sequence = *granted_[i];
    const std::int64_t wanted = std::min(sequence.num_pending(), cap) - sequence.num_granted;
    const std::int64_t more = std::min(wanted, chunk_room(sequence, sequence.num_scheduled + sequence.num_granted));
    if (sequence.num_granted > 0 && more > 0) grant(sequence, more);
  }
  if (first_wants_chunk() && num_left() > 0) grant(*running_.front(), 1);
}

bool Scheduler::first_wants_chunk() const {
  return !running_.empty() && running_.front()->num_granted == 0 && running_.front()->num_pending() > 1;
}

// Tokens that are left for a chunk of this sequence from position `first` on: of the budget, but for one that the first
// in the victim order is to have, and of the target's time, but for the first chunk's least.
std::int64_t Scheduler::chunk_room(const Sequence& sequence, std::int64_t first) const {
  const bool keep_one = first_wants_chunk() && running_.front() != &sequence;
  const std::int64_t left = std::max(num_left() - (keep_one ? 1 : 0), 0);
  const ChunkStart start{first, std::max(first, sequence.owner->num_scored) < sequence.num_to_score(first + left)};
  return fitting(load_, num_outputs_ > 0, start, left, granted_.size() == num_outputs_);
}

Sequence* Scheduler::next_for_chunk(std::size_t& next_running, bool& admitting) {
  for (;;) {
    // One that gave its place to a newcomer is passed over, and one that had its turn in a newcomer's place.
    while (next_running < chunks_.size() &&
           (chunks_[next_running]->state != SequenceState::kRunning || chunks_[next_running]->num_granted > 0)) {
      ++next_running;
    }
    Sequence* running = next_running < chunks_.size() ? chunks_[next_running] : nullptr;
    Sequence* newcomer = admitting ? queue_.first() : nullptr;
    if (newcomer == nullptr || (running != nullptr && policy::starts_before(*running, *newcomer))) {
      if (running != nullptr) ++next_running;
      return running;
    }
    if (Sequence* sequence = try_newcomer(*newcomer, admitting)) return sequence;
  }
}

// ---- the plan

const StepPlan& Scheduler::emit_plan() {
  if (num_granted_ == 0) return nothing_;
  ++num_in_flight_;
  Step& step = newest();
  step.plan.clear();
  step.plan.step = ++num_planned_;
  step.load = {};
  step.start = now_;
  for (Sequence* sequence : granted_) {
    if (sequence->num_granted > 0) add_slice(*sequence);  // else preempted after all
  }
  std::swap(step.plan.copies, copies_);
  if (sources_.size() > 0) {
    num_retired_blocks_ += sources_.size();
    step.tables.push_back(std::exchange(sources_, blocks_.make_table({})));
  }
  return step.plan;
}

void Scheduler::add_slice(Sequence& sequence) {
  StepPlan& plan = newest().plan;
  const bool reaches_end = sequence.num_granted == sequence.num_known() - sequence.num_scheduled &&
                           sequence.owner->request.max_tokens > 0;  // else there is nothing behind it
  Slice slice{&sequence, sequence.num_scheduled, sequence.num_granted, reaches_end ? 1 : 0, -1, sequence.epoch};
  add_scores(slice);
  FOLIO_CHECK(blocks_.is_writable(sequence.blocks, slice.first, sources_), "a slice writes into blocks of its own");
  if (slice.first >= sequence.num_tokens()) slice.in_flight_row = sequence.sample_row;
  sequence.num_scheduled += slice.count;
  plan.num_tokens += slice.count;
  plan.slices.push_back(slice);
  newest().load.add_slice(slice.first, slice.count, slice.num_logits + slice.num_scored);
  if (!reaches_end) return;
  const auto index = static_cast<std::int32_t>(plan.slices.size() - 1);
  add_sample(sequence, index);
  if (sequence.num_scheduled == sequence.num_prompt_tokens()) fork_siblings(sequence, index);
}

// Each position is scored by the first plan that computes it after those before it were: whoever comes to it later,
// because it was preempted or is another of n, finds it counted.
void Scheduler::add_scores(Slice& slice) {
  RequestState& owner = *slice.sequence->owner;
  const std::int64_t end = slice.sequence->num_to_score(slice.first + slice.count);
  if (end <= owner.num_scored) return;
  FOLIO_CHECK(slice.first <= owner.num_scored, "no position is passed over");
  slice.first_scored = owner.num_scored;
  slice.num_scored = static_cast<std::int32_t>(end - owner.num_scored);
  owner.num_scored = end;
}

void Scheduler::add_sample(Sequence& sequence, std::int32_t slice) {
  StepPlan& plan = newest().plan;
  ++sequence.num_samples_in_flight;
  sequence.sample_row = plan.num_samples();
  plan.samples.push_back({&sequence, slice, sequence.epoch});
}

// The sequence's prompt ends in this plan: those of its request that never ran share its blocks and take their first
// tokens from the same logits, as far as there are places and they are the next to get one. The others are admitted
// later like anybody else.
void Scheduler::fork_siblings(Sequence& sequence, std::int32_t slice) {
  RequestState& owner = *sequence.owner;
  for (Sequence& sibling : owner.sequences) {
    if (running_.size() >= max_running() || queue_.first() != &sibling) continue;
    if (sibling.state != SequenceState::kWaiting || sibling.admission != 0) continue;
    start_running(sibling);
    sibling.blocks = blocks_.fork(sequence.blocks, sequence.num_prompt_tokens());
    reserve_table(sibling.blocks, sibling);
    sibling.num_computed = sequence.num_computed;
    sibling.num_scheduled = sequence.num_prompt_tokens();
    reserve_share(sibling);
    add_sample(sibling, slice);
  }
  note_peak(owner);
}

}  // namespace folio
