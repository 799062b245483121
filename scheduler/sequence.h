// One generation of a request while it lives. Written by the scheduler alone; others read it through a plan's slices.
//
//   tokens         p p p p p p o o o        prompt, outputs; empty until the first admission, as the request has the
//                                           prompt and n sequences that wait need no copies of it
//   num_computed   ─────────>               K/V of [0, num_computed) are in the blocks
//   num_scheduled  ───────────>             slices up to here were planned (equal to num_computed between steps at
//                                           depth 1; ahead of it by the step in flight at depth 2)
//   num_samples_in_flight                   tokens that a step in flight will add: known to come, not known which
//
// 0 <= num_computed <= num_scheduled <= num_known(), and the table covers [0, num_scheduled).
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/params.h"
#include "block_manager/block_table.h"
#include "scheduler/request.h"

namespace folio {

struct Sequence;
struct Tenant;

// A request and its sequences. Sequences keep their address for as long as a step names them.
struct RequestState {
  Request request;
  std::uint64_t arrival = 0;  // 1, 2, 3 ... in the order of submission
  TimePoint deadline{};       // the earlier of the request's two
  Tenant* tenant = nullptr;
  ContentRef domain;  // root of the content that it may share
  std::vector<Sequence> sequences;
  std::int32_t num_live = 0;
  std::int32_t num_running = 0;

  std::int64_t num_uncached_tokens = 0;  // of the prompt, on arrival
  bool started = false;                  // a sequence was admitted at some time
  bool announced = false;                // commit said so
  // If its prompt's log probabilities are asked for: of the positions [0, num_scored) they are in plans. What is cached
  // further on is computed all the same.
  std::int64_t num_scored = 0;
  bool pin_tried = false;
  std::int64_t num_cached_tokens = 0;
  std::int64_t num_pinned_tokens = 0;
  std::int64_t num_output_tokens = 0;
  std::int64_t num_recomputed_tokens = 0;
  std::int32_t num_chunks = 0;
  std::int32_t num_preemptions = 0;
  std::int32_t peak_blocks = 0;
  bool grew = false;                          // in the plan being made: its peak is to be noted
  FinishReason finish = FinishReason::kNone;  // of what ended so far, the last in the order of the enumeration
  TimePoint first_scheduled{};
  TimePoint first_token{};
};

enum class SequenceState : std::uint8_t { kWaiting, kRunning, kEnded };

struct Sequence {
  Sequence(RequestState& owner_state, std::int32_t index_in_request, BlockTable table)
      : owner(&owner_state), index(index_in_request), blocks(std::move(table)) {}

  RequestState* owner;
  std::int32_t index;
  SequenceState state = SequenceState::kWaiting;
  FinishReason ending = FinishReason::kNone;  // marked: the next commit ends it
  std::vector<TokenId> tokens;
  std::int64_t num_computed = 0;
  std::int64_t num_scheduled = 0;
  std::int64_t num_once_computed = 0;  // the most that num_computed ever was: what is below is computed again
  std::int32_t num_samples_in_flight = 0;
  std::int32_t sample_row = -1;  // of the newest sample in flight, in its step
  TimePoint last_token{};        // epoch of the clock: none yet
  BlockTable blocks;             // empty unless running

  std::int64_t level = 0;  // priority, raised by age while it waits
  TimePoint waiting_since{};
  int num_agings = 0;
  double reserved = 0;             // charged to the tenant and not taken yet
  std::uint64_t admission = 0;     // 1, 2, 3 ... in the order of first admission; 0: never yet
  std::uint64_t epoch = 0;         // raised by a preemption: slices of an older epoch computed K/V that are gone
  std::uint64_t preempted_at = 0;  // number of the schedule() that preempted it last
  bool owes_token = false;         // resumed, or let in by its age, and no token given since
  std::int32_t num_granted = 0;    // tokens in the plan being made

  std::int64_t num_prompt_tokens() const { return static_cast<std::int64_t>(owner->request.prompt.size()); }
  std::int64_t num_tokens() const {
    return tokens.empty() ? num_prompt_tokens() : static_cast<std::int64_t>(tokens.size());
  }
  std::span<const TokenId> known_tokens() const { return tokens.empty() ? owner->request.prompt : tokens; }
  std::int64_t num_output_tokens() const { return num_tokens() - num_prompt_tokens(); }
  std::int64_t num_known() const { return num_tokens() + num_samples_in_flight; }
  // Positions that can be planned now. The last token that a sequence may give is never computed; a prompt always is.
  std::int64_t num_pending() const {
    const std::int64_t num_outputs = std::max<std::int64_t>(owner->request.max_tokens - 1, 0);
    return std::min(num_known(), num_prompt_tokens() + num_outputs) - num_scheduled;
  }
  // How many of the positions [0, end) are, or will be, in plans with their scores: all but the prompt's last.
  std::int64_t num_to_score(std::int64_t end) const {
    return owner->request.wants_scores() ? std::min(end, num_prompt_tokens() - 1) : 0;
  }
  // How many of its first tokens may come from the cache: the last known one is computed in any case, for what comes
  // after it, and what is to be scored is computed too.
  std::int64_t num_adoptable() const {
    const bool scores = owner->num_scored < num_to_score(num_prompt_tokens());
    return std::min(num_tokens() - 1, scores ? owner->num_scored : num_tokens());
  }
};

}  // namespace folio
