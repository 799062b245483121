// The walks that prove the rest right.
#include <algorithm>
#include <string>

#include "scheduler/scheduler.h"

namespace folio {

std::optional<std::string> Scheduler::broken_invariant() {
  if (auto broken = blocks_.broken_invariant(tables())) return broken;
  if (!pins_.counts_agree()) return "pins: the counts do not agree with their chains";
  for (const auto& [id, state] : requests_) {
    std::int32_t num_running = 0;
    for (const Sequence& sequence : state->sequences) {
      if (auto broken = broken_sequence(sequence)) {
        return "request " + std::to_string(id) + " index " + std::to_string(sequence.index) + ": " + *broken;
      }
      num_running += sequence.state == SequenceState::kRunning ? 1 : 0;
    }
    if (num_running != state->num_running) return "request " + std::to_string(id) + ": wrong count of running";
  }
  if (auto broken = broken_counts()) return broken;
  return broken_orders();
}

std::optional<std::string> Scheduler::broken_counts() const {
  std::size_t num_live = 0;
  std::int32_t num_running_requests = 0;
  QueueLoad load;
  for (const auto& [id, state] : requests_) {
    num_live += static_cast<std::size_t>(std::ranges::count_if(
        state->sequences, [](const Sequence& sequence) { return sequence.state != SequenceState::kEnded; }));
    num_running_requests += state->num_running > 0 ? 1 : 0;
    if (state->started) continue;
    ++load.requests;
    load.prompt_tokens += static_cast<std::int64_t>(state->request.prompt.size());
  }
  if (num_live != running_.size() + queue_.size()) return "a live sequence is neither waiting nor running, or both";
  if (num_running_requests != counts_.running_requests) return "wrong count of running requests";
  if (load.requests != queue_load_.requests || load.prompt_tokens != queue_load_.prompt_tokens) {
    return "wrong queue load";
  }
  if (copies_.empty() != (sources_.size() == 0)) return "copies without sources, or the reverse";
  std::int32_t num_retired = 0;
  for (const Step& step : steps_) {
    for (const BlockTable& table : step.tables) num_retired += table.size();
  }
  if (num_retired != num_retired_blocks_) return "wrong count of retired blocks";
  return std::nullopt;
}

std::optional<std::string> Scheduler::broken_sequence(const Sequence& sequence) const {
  if (sequence.state != SequenceState::kRunning && sequence.blocks.size() != 0) return "it holds blocks, not running";
  if (sequence.state != SequenceState::kRunning && sequence.reserved != 0) return "it has a reserve, not running";
  if (sequence.state == SequenceState::kEnded) return std::nullopt;
  if (sequence.tokens.empty() != (sequence.admission == 0)) return "tokens and never admitted, or the reverse";
  if (sequence.num_computed > sequence.num_scheduled) return "computed more than was scheduled";
  if (sequence.num_scheduled > sequence.num_known()) return "scheduled more than is known";
  if (num_in_flight_ == 0 && sequence.num_computed != sequence.num_scheduled) return "scheduled, and no step in flight";
  if (num_in_flight_ == 0 && sequence.num_samples_in_flight != 0) return "a sample, and no step in flight";
  if (sequence.num_output_tokens() >= std::max<std::int64_t>(sequence.owner->request.max_tokens, 1)) {
    return "over its max_tokens";
  }
  if (sequence.num_to_score(sequence.num_scheduled) > sequence.owner->num_scored) return "scheduled and not scored";
  if (blocks_.blocks_for(sequence.num_scheduled) > sequence.blocks.size()) return "its table is too short";
  if (sequence.blocks.num_sealed() != sequence.num_computed / limits_.block_size)
    return "not all that is full is sealed";
  return std::nullopt;
}

std::optional<std::string> Scheduler::broken_orders() const {
  const auto safer = [](const Sequence* a, const Sequence* b) { return policy::safer_than(*a, *b); };
  if (!std::is_sorted(running_.begin(), running_.end(), safer)) return "running: not in the victim order";
  for (const Sequence* sequence : running_) {
    if (sequence->state != SequenceState::kRunning) return "running: one that is not";
  }
  std::optional<std::string> broken;
  queue_.for_each([&](const Sequence& sequence) {
    if (sequence.state != SequenceState::kWaiting) broken = "waiting: one that is not";
  });
  return broken;
}

}  // namespace folio
