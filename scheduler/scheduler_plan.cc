// schedule(): who gets which positions in the next step, and the blocks for them.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace folio {
namespace {

// What a client must be told before its transport's deadline is sent this much earlier than a step before it.
constexpr Duration kTransportMargin = std::chrono::milliseconds(10);
// A tenant is charged for so many outputs when a sequence is admitted.
constexpr std::int64_t kReservedOutputs = 256;

}  // namespace

const StepPlan& Scheduler::schedule() {
  FOLIO_CHECK(num_in_flight_ < kMaxDepth, "a step is committed before one more is planned");
  now_ = clock_.now();
  ++num_schedules_;
  granted_.clear();
  num_granted_ = 0;
  num_promised_ = 0;
  load_ = {};
  has_outputs_ = false;
  pins_.release_expired(now_);
  queue_.age(now_);
  mark_expired();
  if (!marked_.empty()) return nothing_;
  grant_outputs();
  if (!marked_.empty()) return nothing_;  // the first is alone and cannot grow
  grant_chunks();
  return marked_.empty() ? emit_plan() : nothing_;
}

void Scheduler::mark_expired() {
  const auto expire = [this](std::set<std::pair<TimePoint, RequestId>>& deadlines, TimePoint now) {
    for (; !deadlines.empty() && deadlines.begin()->first <= now; deadlines.erase(deadlines.begin())) {
      end(deadlines.begin()->second, FinishReason::kDeadline);
    }
  };
  expire(deadlines_, now_);
  expire(transport_deadlines_, now_ + kTransportMargin + (running_.empty() ? Duration::zero() : last_step_));
}

void Scheduler::grant(Sequence& sequence, std::int64_t count) {
  if (sequence.num_granted == 0) granted_.push_back(&sequence);
  load_.add_slice(sequence.num_scheduled + sequence.num_granted, count, sequence.num_granted == 0 ? 1 : 0);
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
  has_outputs_ = num_granted_ > 0;
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
    if (blocks_.num_available() + num_retired_blocks_ - num_promised_ >= missing) {  // they come with a step in flight
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
  return blocks_.is_writable(sequence.blocks, position) ? 0 : 1;
}

void Scheduler::take_next_slot(Sequence& sequence) {
  const std::int64_t position = sequence.num_scheduled;
  if (blocks_.blocks_for(position + 1) > sequence.blocks.size()) {
    blocks_.make_room(sequence.blocks, position + 1);
  } else {
    const BlockId from = blocks_.make_writable(sequence.blocks, position, sources_);
    copies_.push_back({from, sequence.blocks.ids()[static_cast<std::size_t>(position / limits_.block_size)]});
  }
  note_peak(*sequence.owner);
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
  const std::size_t first_chunk = granted_.size();
  std::int64_t share = 0;
  std::size_t next_running = 0;
  bool admitting = true;
  while (Sequence* sequence = next_for_chunk(next_running, admitting)) {
    const std::int64_t room = chunk_room(*sequence, granted_.size() == first_chunk);
    if (room <= 0) break;
    if (share == 0) share = std::min(cap, crowded ? std::max<std::int64_t>(1, room / 2) : room);
    grant(*sequence, std::min({sequence->num_pending(), share, room}));
  }
  queue_.take_back();
  for (std::size_t i = first_chunk; i < granted_.size(); ++i) {
    Sequence& sequence = *granted_[i];
    const std::int64_t wanted = std::min(sequence.num_pending(), cap) - sequence.num_granted;
    const std::int64_t more = std::min(wanted, chunk_room(sequence, false));
    if (sequence.num_granted > 0 && more > 0) grant(sequence, more);
  }
  if (first_wants_chunk() && num_left() > 0) grant(*running_.front(), 1);
}

bool Scheduler::first_wants_chunk() const {
  return !running_.empty() && running_.front()->num_granted == 0 && running_.front()->num_pending() > 1;
}

// Tokens that are left for a chunk of this sequence: of the budget, but for one that the first is to have, and of the
// target's time.
std::int64_t Scheduler::chunk_room(const Sequence& sequence, bool is_first_chunk) const {
  const bool keep_one = first_wants_chunk() && running_.front() != &sequence;
  const std::int64_t left = num_left() - (keep_one ? 1 : 0);
  return fitting(load_, has_outputs_, sequence.num_scheduled + sequence.num_granted, std::max<std::int64_t>(left, 0),
                 is_first_chunk);
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

// The newcomer, admitted; or whom it waits for, since that one computes what both want; or nobody.
Sequence* Scheduler::try_newcomer(Sequence& newcomer, bool& admitting) {
  // Preempted a moment ago, or its newest token is still on its way.
  admitting = newcomer.preempted_at != num_schedules_ && newcomer.num_samples_in_flight == 0;
  if (!admitting) return nullptr;
  BlockTable table = blocks_.make_table(newcomer.owner->domain);
  // The last known token is computed in any case, for what comes after it.
  blocks_.adopt(table, newcomer.known_tokens().first(static_cast<std::size_t>(newcomer.num_tokens() - 1)));
  if (Sequence* other = awaited_by(newcomer, table)) {
    queue_.set_aside(newcomer);
    admitting = queue_.num_aside() + running_.size() < max_running();
    return other->num_granted == 0 && other->num_pending() > 1 ? other : nullptr;
  }
  admitting = admit(newcomer, std::move(table));
  return admitting ? &newcomer : nullptr;
}

// A running sequence that computes what the newcomer would compute next: the prompt of its own request, or a whole
// block of the same tokens after the same content.
Sequence* Scheduler::awaited_by(const Sequence& newcomer, const BlockTable& table) const {
  const std::int64_t begin = std::int64_t{table.num_sealed()} * limits_.block_size;
  const std::int64_t end = begin + limits_.block_size;
  for (Sequence* other : running_) {
    const bool is_sibling = other->owner == newcomer.owner;
    if (is_sibling && newcomer.admission == 0 && other->num_scheduled < other->num_prompt_tokens()) return other;
    if (other->owner->domain.id != newcomer.owner->domain.id || other->blocks.tip().id != table.tip().id) continue;
    if (end > other->num_tokens() || end > newcomer.num_tokens()) continue;
    const auto block = [&](const Sequence& sequence) {
      return sequence.known_tokens().subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin));
    };
    if (std::ranges::equal(block(*other), block(newcomer))) return other;
  }
  return nullptr;
}

// A place among the running and blocks for all tokens so far, or neither. `table` has adopted what is cached.
bool Scheduler::admit(Sequence& sequence, BlockTable table) {
  const std::int64_t num_tokens = sequence.num_tokens();
  if (blocks_.blocks_for(num_tokens) > blocks_.num_blocks()) {  // it grew to the whole pool before it was preempted
    mark(sequence, FinishReason::kLength);
    return false;
  }
  const std::int64_t num_adopted = std::int64_t{table.size()} * limits_.block_size;
  const std::int32_t missing = blocks_.blocks_for(num_tokens) - table.size();
  PartialHit partial = blocks_.partial_hit(
      table, sequence.known_tokens().subspan(static_cast<std::size_t>(num_adopted),
                                             static_cast<std::size_t>(num_tokens - 1 - num_adopted)));
  const auto for_source = [&] { return partial.num_tokens > 0 && blocks_.ref_count(partial.block) == 0 ? 1 : 0; };
  while (!take_places(sequence, missing + for_source())) {
    if (for_source() > 0) {
      partial = {};
    } else if (running_.empty() && num_in_flight_ == 0 && pins_.release_oldest()) {
      ++counts_.num_pins_released;
    } else {
      return false;
    }
  }
  if (blocks_.num_available() < missing + for_source()) return false;  // what it took comes with a step in flight

  start_running(sequence);
  if (partial.num_tokens > 0) blocks_.hold(partial.block, sources_);
  FOLIO_CHECK(blocks_.make_room(table, num_tokens), "what was made sure of is there");
  if (partial.num_tokens > 0) {
    copies_.push_back({partial.block, table.ids()[static_cast<std::size_t>(num_adopted / limits_.block_size)]});
  }
  sequence.blocks = std::move(table);
  sequence.num_computed = sequence.num_scheduled = num_adopted + partial.num_tokens;
  RequestState& owner = *sequence.owner;
  if (!owner.started) {
    owner.started = true;
    owner.first_scheduled = now_;
    owner.num_cached_tokens = sequence.num_computed;
    counts_.cached_tokens += sequence.num_computed;
    --queue_load_.requests;
    queue_load_.prompt_tokens -= sequence.num_prompt_tokens();
  }
  reserve_share(sequence);
  note_peak(owner);
  return true;
}

// Makes sure of a place, of a token and of num_blocks blocks (available now or with the steps in flight) by preempting
// running sequences of a strictly lower priority, the last first; nobody is preempted when that would not be enough.
bool Scheduler::take_places(const Sequence& sequence, std::int32_t num_blocks) {
  const std::int32_t available = blocks_.num_available() + num_retired_blocks_ - num_promised_;
  std::int32_t released = 0;
  std::int64_t num_tokens = num_left();
  std::size_t num_victims = 0;
  tables_.clear();
  while (available + released < num_blocks || running_.size() - num_victims >= max_running() || num_tokens < 1) {
    if (num_victims == running_.size()) return false;
    const Sequence& victim = *running_[running_.size() - 1 - num_victims];
    if (!policy::may_replace(sequence, victim)) return false;
    tables_.push_back(&victim.blocks);
    released = blocks_.num_released_by(tables_);
    num_tokens += victim.num_granted;
    ++num_victims;
  }
  for (; num_victims > 0; --num_victims) preempt(running_.size() - 1);
  return true;
}

void Scheduler::start_running(Sequence& sequence) {
  queue_.erase(sequence);
  RequestState& owner = *sequence.owner;
  const bool is_new = sequence.admission == 0;
  if (is_new) {
    sequence.admission = ++num_admissions_;
    const std::int64_t most = sequence.num_prompt_tokens() + owner.request.max_tokens;
    sequence.tokens.reserve(static_cast<std::size_t>(most));
    sequence.tokens = owner.request.prompt;
  }
  sequence.owes_token = !is_new || sequence.level > owner.request.priority;
  sequence.state = SequenceState::kRunning;
  sequence.num_granted = 0;
  if (owner.num_running++ == 0) ++counts_.running_requests;
  const auto place = std::upper_bound(running_.begin(), running_.end(), &sequence,
                                      [](const Sequence* a, const Sequence* b) { return policy::safer_than(*a, *b); });
  running_.insert(place, &sequence);
}

// Charges the tenant for what the sequence will take first.
void Scheduler::reserve_share(Sequence& sequence) {
  const std::int64_t done = std::max(sequence.num_scheduled, sequence.num_once_computed);
  const std::int64_t prompt = std::max<std::int64_t>(0, sequence.num_prompt_tokens() - done);
  const std::int64_t outputs =
      std::min(sequence.owner->request.max_tokens - sequence.num_output_tokens(), kReservedOutputs);
  reserve(sequence, static_cast<double>(prompt + kOutputWeight * outputs));
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
  const bool reaches_end = sequence.num_granted == sequence.num_known() - sequence.num_scheduled;
  Slice slice{&sequence, sequence.num_scheduled, sequence.num_granted, reaches_end ? 1 : 0, -1, sequence.epoch};
  FOLIO_CHECK(blocks_.is_writable(sequence.blocks, slice.first), "a slice writes into blocks of its own");
  if (slice.first >= sequence.num_tokens()) slice.in_flight_row = sequence.sample_row;
  sequence.num_scheduled += slice.count;
  plan.num_tokens += slice.count;
  plan.slices.push_back(slice);
  newest().load.add_slice(slice.first, slice.count, slice.num_logits);
  if (!reaches_end) return;
  const auto index = static_cast<std::int32_t>(plan.slices.size() - 1);
  add_sample(sequence, index);
  if (sequence.num_scheduled == sequence.num_prompt_tokens()) fork_siblings(sequence, index);
}

void Scheduler::add_sample(Sequence& sequence, std::int32_t slice) {
  StepPlan& plan = newest().plan;
  ++sequence.num_samples_in_flight;
  sequence.sample_row = plan.num_samples();
  plan.samples.push_back({&sequence, slice, sequence.epoch});
}

// The sequence's prompt ends in this plan: those of its request that never ran share its blocks and take their first
// tokens from the same logits, as far as there are places. Who finds none is admitted later like anybody else.
void Scheduler::fork_siblings(Sequence& sequence, std::int32_t slice) {
  RequestState& owner = *sequence.owner;
  for (Sequence& sibling : owner.sequences) {
    if (running_.size() >= max_running()) break;
    if (sibling.state != SequenceState::kWaiting || sibling.admission != 0) continue;
    start_running(sibling);
    sibling.blocks = blocks_.fork(sequence.blocks, sequence.num_prompt_tokens());
    sibling.num_computed = sequence.num_computed;
    sibling.num_scheduled = sequence.num_prompt_tokens();
    reserve_share(sibling);
    add_sample(sibling, slice);
  }
  note_peak(owner);
}

}  // namespace folio
