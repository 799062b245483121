// schedule(): who waits is admitted, with the cached blocks that its tokens begin with, or waits for what others
// compute.
#include <algorithm>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace folio {
namespace {

// A tenant is charged for so many outputs when a sequence is admitted.
constexpr std::int64_t kReservedOutputs = 256;

}  // namespace

// The newcomer, admitted; or whom it waits for, since that one computes what both want; or nobody.
Sequence* Scheduler::try_newcomer(Sequence& newcomer, bool& admitting) {
  // Not one that was preempted a moment ago, or whose newest token is still on its way.
  admitting = newcomer.preempted_at != num_schedules_ && newcomer.num_samples_in_flight == 0 && has_place(newcomer);
  if (!admitting) return nullptr;
  BlockTable table = blocks_.make_table(newcomer.owner->domain);
  blocks_.adopt(table, newcomer.known_tokens().first(static_cast<std::size_t>(newcomer.num_adoptable())));
  if (Sequence* other = awaited_by(newcomer, table)) {
    queue_.set_aside(newcomer);
    admitting = queue_.num_aside() + running_.size() < max_running();
    return other->num_granted == 0 && other->num_pending() > 1 ? other : nullptr;
  }
  // Without a token for it this step has no use for it; when all are given out, it may still take from others.
  const std::int64_t most_cached = std::int64_t{table.size() + 1} * limits_.block_size;
  admitting = num_left() == 0 || chunk_room(newcomer, most_cached) > 0;
  admitting = admitting && admit(newcomer, std::move(table));
  return admitting ? &newcomer : nullptr;
}

// A running sequence that computes what the newcomer would compute next: the prompt of its own request, or a whole
// block of the same tokens after the same content.
Sequence* Scheduler::awaited_by(const Sequence& newcomer, const BlockTable& table) const {
  const std::int64_t begin = std::int64_t{table.num_sealed()} * limits_.block_size;
  const std::int64_t end = begin + limits_.block_size;
  for (Sequence* other : running_) {
    const bool is_sibling = other->owner == newcomer.owner;
    // Or what is in flight, if nothing is sampled behind it: all of them end with it.
    const bool computes = other->num_scheduled < other->num_prompt_tokens() || other->owner->request.max_tokens == 0;
    if (is_sibling && newcomer.admission == 0 && computes) return other;
    if (other->owner->domain.id != newcomer.owner->domain.id || other->blocks.tip().id != table.tip().id) continue;
    if (end > other->num_tokens() || end > newcomer.num_tokens()) continue;
    if (newcomer.num_adoptable() < std::min(end, newcomer.num_tokens() - 1)) continue;  // it has no use for it
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
                                             static_cast<std::size_t>(sequence.num_adoptable() - num_adopted)));
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
  if (blocks_.num_available() < missing + for_source()) partial = {};  // whom it took from may have held the source
  if (blocks_.num_available() < missing) return false;                 // what it took comes with a step in flight

  start_running(sequence);
  if (partial.num_tokens > 0) blocks_.hold(partial.block, sources_);
  reserve_table(table, sequence);
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
    if (shares_cache(owner.request) && !owner.request.wants_scores())
      counts_.queried_tokens += sequence.num_prompt_tokens();
    --queue_load_.requests;
    queue_load_.prompt_tokens -= sequence.num_prompt_tokens();
  }
  reserve_share(sequence);
  note_peak(owner);
  return true;
}

// Growing asks for no memory.
void Scheduler::reserve_table(BlockTable& table, const Sequence& sequence) const {
  const std::int64_t most = sequence.num_prompt_tokens() + sequence.owner->request.max_tokens;
  table.reserve(std::min(blocks_.blocks_for(most), blocks_.num_blocks()));
}

bool Scheduler::has_place(const Sequence& newcomer) const {
  if (running_.size() < max_running()) return true;
  const auto last =
      std::find_if(running_.rbegin(), running_.rend(), [](const Sequence* s) { return !policy::is_overdue(*s); });
  return last != running_.rend() && policy::may_replace(newcomer, **last);
}

// Makes sure of a place, of a token and of num_blocks blocks (available now or with the steps in flight) by preempting
// running sequences of a strictly lower priority, the last first; nobody is preempted when that would not be enough.
// One block for each running sequence that would not give way stays free: who is let in on the last blocks is the first
// to lose them, and its work with them.
bool Scheduler::take_places(const Sequence& sequence, std::int32_t num_blocks) {
  num_blocks += static_cast<std::int32_t>(std::ranges::count_if(
      running_, [&](const Sequence* running) { return !policy::may_replace(sequence, *running); }));
  const std::int32_t available = blocks_.num_available() - num_promised_;
  std::int32_t released = num_coming();
  std::int64_t num_tokens = num_left();
  victims_.clear();
  std::size_t i = running_.size();
  while (available + released < num_blocks || running_.size() - victims_.size() >= max_running() || num_tokens < 1) {
    if (i-- == 0) return false;
    const Sequence& victim = *running_[i];
    if (policy::is_overdue(victim)) continue;
    if (!policy::may_replace(sequence, victim)) return false;
    tables_.push_back(&victim.blocks);
    released = blocks_.num_released_by(tables_);
    num_tokens += victim.num_granted;
    victims_.push_back(i);
  }
  for (const std::size_t victim : victims_) preempt(victim);  // the last first, so that the others keep their places
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

}  // namespace folio
