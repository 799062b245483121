// A scheduler with a pool, a clock and a fake model, run step by step at depth 1 or 2, and what its events said. After
// every step the invariants are walked.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "scheduler/scheduler.h"
#include "tests/support/fake_model/fake_cache.h"

namespace folio {

class ManualClock final : public Clock {
 public:
  TimePoint now() const override { return now_; }
  void advance(Duration d) { now_ += d; }

 private:
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

inline constexpr TokenId kFakeVocab = 97;

// The plain form of what a sequence gives: no steps, no blocks.
struct Alone {
  std::vector<TokenId> outputs;
  FinishReason finish = FinishReason::kNone;
};
// stop_modulus > 0: a token that it divides ends the sequence.
Alone run_alone(const SchedulerLimits& limits, const Request& request, std::int32_t stop_modulus);

class World {
 public:
  explicit World(SchedulerLimits limits, std::uint64_t shuffle_seed = 7);

  struct Told {
    bool started = false;
    std::vector<TokenId> outputs;
    FinishReason finish = FinishReason::kNone;
  };
  struct Asked {
    Request request;
    std::int32_t stop_modulus = 0;
    std::vector<Told> told;  // by index
    std::optional<RequestSummary> summary;
  };

  // The prompt is made from the id. The request's id, 0 when it was refused.
  RequestId submit(std::int64_t num_prompt_tokens, std::int64_t max_tokens, std::int32_t priority = 0,
                   std::int32_t n = 1);
  RequestId submit(Request request, std::int32_t stop_modulus = 0);

  // One schedule at depth 1, run and committed. The plan's slices in their order, as "id:count" or, of n,
  // "id.index:count".
  std::string step();
  // One schedule; commits the oldest step when `depth` are in flight. False: nothing was planned, committed or told.
  bool step_at(int depth, bool run_early = false);
  void run_to_end(int depth = 1);
  void fail_next() { fail_next_ = true; }  // the next step that is committed throws

  std::map<RequestId, Asked>& asked() { return asked_; }
  const Told& told(RequestId id, std::int32_t index = 0) { return asked_[id].told[static_cast<std::size_t>(index)]; }
  // Every ended sequence gave what it gives alone, or the beginning of it when something ended it.
  void expect_as_alone();

  BlockManager blocks;
  ManualClock clock;
  Scheduler scheduler;
  std::int64_t num_steps = 0;

 private:
  struct Work {  // of one slice, as the arrays of a batch would hold it
    const Sequence* sequence;
    std::uint64_t epoch;
    std::int64_t first;
    std::vector<BlockId> table;
    std::vector<TokenId> tokens;
    std::int32_t in_flight_row;
  };
  struct Sample {
    RequestId request;
    std::int32_t slice;
  };
  struct InFlight {
    const StepPlan* plan;
    std::vector<Work> work;
    std::vector<PlannedCopy> copies;
    std::vector<Sample> samples;
    std::vector<TokenId> sampled;
    std::vector<FinishReason> verdicts;
    bool ran = false;
  };
  InFlight build(const StepPlan& plan) const;
  void check_plan(const StepPlan& plan) const;
  void check_no_early_reuse(const InFlight& step) const;
  void run(InFlight& step);
  void run_all();
  void commit_oldest();
  void hear(const Events& events, const std::vector<TokenId>& sampled);

  FakeCache cache_;
  std::deque<InFlight> in_flight_;
  std::vector<TokenId> last_sampled_;  // of the newest step that ran
  std::map<RequestId, Asked> asked_;
  RequestId last_id_ = 0;
  bool fail_next_ = false;
};

}  // namespace folio
