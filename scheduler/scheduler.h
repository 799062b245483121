// Continuous batching: decides, step by step, which sequences compute which positions in which blocks. Knows ids and
// counts only, no bytes, no text. One thread.
//
//   schedule()  the only place that allocates or preempts
//   commit()    the only place that advances, finishes, frees and gives back events; fail() is its form for a step that
//               threw. Whatever else wants a sequence to end (end(), a deadline, no room to grow) marks it; the next
//               schedule() then gives a plan without slices, to be committed at once.
//
// Depth: at most kMaxDepth plans with slices are in flight (scheduled, not yet committed); they commit in order. At
// depth 2 a plan is made while the step before runs, so a slice's token may still be "row r of that step".
//
// Blocks of a sequence that ends or is preempted while steps are in flight stay with the newest of these, and are free
// only when it was committed: no step ever finds a block that it names in another's hands.
//
// Reuse: a sequence is admitted with the cached blocks that its tokens begin with, a block of which only the first
// tokens agree is copied, and only the rest is computed; a preempted sequence comes back the same way. Whole blocks
// that a running sequence is about to compute are waited for, not computed twice. Of n sequences the first computes the
// prompt; the others are forked from it in the plan that ends the prompt.
//
// Progress: every schedule() at depth 1 that finds a live request gives a plan with slices, one of them the first in
// the victim order's, or one that ends something (at depth 2: when no step is in flight). The first is never a victim
// of running sequences and may take from all of them, but for a lower priority that came in by its age and has not
// given a token yet: if all the rest is not enough, it waits for that token, and the slices are such ones'. Who cannot
// grow waits a step and keeps its blocks.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "block_manager/block_manager.h"
#include "block_manager/pins.h"
#include "scheduler/admission.h"
#include "scheduler/events.h"
#include "scheduler/fair_queue.h"
#include "scheduler/policy.h"
#include "scheduler/request.h"
#include "scheduler/sequence.h"
#include "scheduler/slot_use.h"
#include "scheduler/step_plan.h"
#include "scheduler/step_time_model.h"

namespace folio {

struct SchedulerCounts {
  std::int32_t running_requests = 0;  // with a sequence that holds blocks
  std::int32_t waiting_requests = 0;
  std::int64_t num_steps = 0;               // committed or failed
  std::int64_t prompt_tokens = 0;           // computed, each once for a sequence
  std::int64_t answered_prompt_tokens = 0;  // of prompts that are done, each once a request
  std::int64_t queried_tokens = 0;  // of the prompts that were looked for in the prefix cache, when they were admitted
  std::int64_t cached_tokens = 0;   // of these, found
  std::int64_t output_tokens = 0;
  std::int64_t num_preemptions = 0;
  std::int64_t num_pins_released = 0;  // that gave way to a request
};

class Scheduler {
 public:
  static constexpr int kMaxDepth = 2;
  // What a client must be told before its transport's deadline is sent this much earlier than a step before it.
  static constexpr Duration kTransportMargin = std::chrono::milliseconds(10);
  static constexpr std::int64_t kMinChunk = 8;      // of the first chunk in a step, whatever the target says
  static constexpr std::int64_t kOutputWeight = 2;  // of an output token in a tenant's counter; a prompt token's is 1

  // blocks and clock outlive the scheduler; the sizes in `limits` are those of `blocks`. Weights are above 0; a tenant
  // that is not named has weight 1.
  Scheduler(BlockManager& blocks, const SchedulerLimits& limits, const Clock& clock,
            std::map<std::string, double> tenant_weights = {});
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A reason why not (also that it could not give a token before its deadline), or nothing. Ids are new ones.
  std::optional<Error> submit(Request request);
  // Ends what is left of the request, or one sequence of it, with this reason: no more is planned for it. What is
  // unknown or over is ignored.
  void end(RequestId id, FinishReason reason);
  void end(RequestId id, std::int32_t index, FinishReason reason);
  void flush_prefix_cache();  // all but what is pinned
  void unpin(RequestId id);   // 0: every pin

  // Stands until it is committed. Without slices it must be committed before the next schedule(), and does not count as
  // in flight.
  const StepPlan& schedule();
  // tokens[i] and verdicts[i] belong to the plan's sample i; no verdicts: none ended. Slices of ended sequences are
  // dropped. The events stand until the next commit() or fail().
  const Events& commit(const StepPlan& plan, std::span<const TokenId> tokens, std::span<const FinishReason> verdicts);
  // The step threw: its requests end with kError.
  const Events& fail(const StepPlan& plan);

  bool empty() const { return requests_.empty(); }
  int num_in_flight() const { return num_in_flight_; }
  QueueLoad queue() const { return queue_load_; }
  SchedulerCounts counts() const;
  BlockCounts count_blocks() { return blocks_.count(tables()); }  // a walk over all tables and pins
  SlotUse slot_use();                                             // likewise
  const Pins& pins() const { return pins_; }
  std::span<const Sequence* const> running() const { return running_; }  // in the victim order
  void release_expired_pins() { pins_.release_expired(clock_.now()); }   // schedule() does it too
  // Until what waits now was started, if nothing else came. Zero while nothing is known yet.
  Duration predicted_queue_time() const;
  StepTimes step_times() const { return step_time_.times(); }
  const SchedulerLimits& limits() const { return limits_; }

  // Walks everything: blocks, tables, queues, counts. Nothing when all holds, else what does not.
  std::optional<std::string> broken_invariant();

 private:
  // A plan in flight and what may be freed only once it was committed.
  struct Step {
    StepPlan plan;
    std::vector<BlockTable> tables;
    std::vector<std::unique_ptr<RequestState>> requests;
    StepLoad load;
    TimePoint start{};
  };

  // schedule()
  void mark_expired();
  Duration until_next_schedule() const;
  void mark(Sequence& sequence, FinishReason reason);
  void grant_outputs();
  bool grow(std::size_t i);
  std::int32_t num_missing(const Sequence& sequence) const;
  void gather_retired();
  std::int32_t num_coming();
  void take_next_slot(Sequence& sequence);
  std::size_t find_victim(std::size_t taker) const;
  void preempt(std::size_t i);
  void grant_chunks();
  bool first_wants_chunk() const;
  std::int64_t chunk_room(const Sequence& sequence, std::int64_t first) const;
  Sequence* next_for_chunk(std::size_t& next_running, bool& admitting);
  Sequence* try_newcomer(Sequence& newcomer, bool& admitting);
  Sequence* awaited_by(const Sequence& newcomer, const BlockTable& table) const;
  bool admit(Sequence& sequence, BlockTable table);
  void reserve_table(BlockTable& table, const Sequence& sequence) const;
  bool has_place(const Sequence& newcomer) const;
  bool take_places(const Sequence& sequence, std::int32_t num_blocks);
  void start_running(Sequence& sequence);
  void reserve_share(Sequence& sequence);
  void grant(Sequence& sequence, std::int64_t count);
  std::int32_t num_left() const { return limits_.max_batch_tokens - num_granted_; }
  struct ChunkStart {
    std::int64_t first;  // position
    bool scores;         // its rows are logit rows too
  };
  std::int64_t fitting(const StepLoad& load, bool has_outputs, ChunkStart start, std::int64_t count,
                       bool at_least_some) const;
  Duration predicted_prefill(std::int64_t num_tokens) const;
  std::size_t max_running() const {
    return static_cast<std::size_t>(std::min(limits_.max_num_seqs, limits_.max_batch_tokens));
  }
  void note_peak(RequestState& owner);
  bool shares_cache(const Request& request) const { return limits_.prefix_cache && !request.cache.bypass; }
  const StepPlan& emit_plan();
  void add_slice(Sequence& sequence);
  void add_scores(Slice& slice);
  void fork_siblings(Sequence& sequence, std::int32_t slice);
  void add_sample(Sequence& sequence, std::int32_t slice);

  // commit()
  Step& take_oldest(const StepPlan& plan);
  void finish_marked();
  void advance(const Slice& slice, std::int32_t first_score);
  void advance_sample(const PlannedSample& planned, const Slice& slice, std::int32_t sample, TokenId token,
                      FinishReason verdict);
  void announce(RequestState& owner);
  void set_computed(Sequence& sequence, std::int64_t num_tokens);
  void pin_prompt(Sequence& sequence);
  void count_computed(const Slice& slice);
  void finish(Sequence& sequence, FinishReason reason);
  void end_sequence(Sequence& sequence, FinishReason reason);
  void finish_all(RequestState& owner, FinishReason reason);
  void close_requests();
  void retire(Sequence& sequence);
  void release(Step& step);

  std::optional<Error> cannot_be_in_time(const Request& request, std::int64_t num_uncached) const;
  const Step& newest() const { return steps_[static_cast<std::size_t>((oldest_ + num_in_flight_ - 1) % kMaxDepth)]; }
  Step& newest() { return steps_[static_cast<std::size_t>((oldest_ + num_in_flight_ - 1) % kMaxDepth)]; }
  std::span<const BlockTable* const> tables();
  std::optional<std::string> broken_counts() const;
  std::optional<std::string> broken_sequence(const Sequence& sequence) const;
  std::optional<std::string> broken_orders() const;

  BlockManager& blocks_;
  const SchedulerLimits limits_;
  const Clock& clock_;
  TimePoint now_{};  // of the schedule() or commit() under way

  std::unordered_map<RequestId, std::unique_ptr<RequestState>> requests_;  // live ones
  FairQueue queue_;
  std::vector<Sequence*> running_;  // in the victim order
  Pins pins_;
  std::set<std::pair<TimePoint, RequestId>> deadlines_;
  std::set<std::pair<TimePoint, RequestId>> transport_deadlines_;
  std::vector<Sequence*> marked_;  // to be ended by the next commit
  std::vector<RequestId> over_;    // requests without a live sequence, until the end of the commit
  std::array<Step, kMaxDepth> steps_;
  int oldest_ = 0;
  int num_in_flight_ = 0;
  std::int32_t num_retired_blocks_ = 0;  // in the tables of steps in flight, also what others hold too
  StepTimeModel step_time_;
  Duration last_step_{};
  TimePoint last_commit_{};
  bool refused_since_step_ = false;  // a request for its deadline, where nothing ran

  // Of the plan being made.
  std::vector<Sequence*> granted_;
  std::vector<Sequence*> chunks_;  // running ones with more than one position to compute, in the start order
  std::int32_t num_granted_ = 0;
  std::int32_t num_promised_ = 0;  // retired blocks that a sequence waits for already
  StepLoad load_;
  std::size_t num_outputs_ = 0;  // of granted_, its first: running outputs, whose next tokens have a target
  // Copies that the tables count on already, until a plan takes them along, and what they are made from.
  std::vector<PlannedCopy> copies_;
  BlockTable sources_;

  StepPlan nothing_;  // the plan without slices
  Events events_;
  std::vector<const BlockTable*> tables_;  // scratch
  std::vector<std::size_t> victims_;       // scratch of take_places()
  QueueLoad queue_load_;
  SchedulerCounts counts_;
  std::uint64_t num_arrivals_ = 0;
  std::uint64_t num_admissions_ = 0;
  std::uint64_t num_schedules_ = 0;
  std::int64_t num_planned_ = 0;
};

}  // namespace folio
