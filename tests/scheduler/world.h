// A scheduler with a pool, a clock and a fake model, run step by step at depth 1 or 2, and what its events said. After
// every step the invariants are walked.
#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <functional>
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

std::vector<TokenId> prompt_of(std::uint64_t seed, std::int64_t num_tokens);
std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b);
// Milliseconds for {a step, row, query-key pair, K/V row, logit row}: what simulated steps take.
std::function<Duration(const StepLoad&)> linear_cost(double step, double row, double pair, double key, double logits);

// The plain form of what a sequence gives: no steps, no blocks.
struct Alone {
  std::vector<TokenId> outputs;
  FinishReason finish = FinishReason::kNone;
};
// stop_modulus > 0: a token that it divides ends the sequence.
Alone run_alone(const SchedulerLimits& limits, const Request& request, std::int32_t stop_modulus);

class World {
 public:
  explicit World(SchedulerLimits limits, std::uint64_t shuffle_seed = 7, std::map<std::string, double> weights = {});

  struct Told {
    bool started = false;
    std::vector<TokenId> outputs;
    FinishReason finish = FinishReason::kNone;
    std::vector<TimePoint> times;  // of the outputs
  };
  struct Asked {
    Request request;
    std::int64_t num_cached_on_arrival = 0;
    std::int32_t stop_modulus = 0;
    std::vector<Told> told;       // by index
    std::int64_t num_scored = 0;  // positions of the prompt that were told, in order
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
  void run_until(RequestId id, FinishReason reason = FinishReason::kLength);  // at depth 1, index 0
  void fail_next() { fail_next_ = true; }                                     // the next step that is committed throws

  std::map<RequestId, Asked>& asked() { return asked_; }
  const Told& told(RequestId id, std::int32_t index = 0) { return asked_[id].told[static_cast<std::size_t>(index)]; }
  const Request& request(RequestId id) { return asked_.at(id).request; }
  const RequestSummary& summary(RequestId id) { return *asked_.at(id).summary; }
  // Every ended sequence gave what it gives alone, or the beginning of it when something ended it.
  void expect_as_alone();

  BlockManager blocks;
  ManualClock clock;
  Scheduler scheduler;
  std::int64_t num_steps = 0;
  std::function<Duration(const StepLoad&)> step_cost;  // empty: a millisecond passes for each schedule
  std::optional<Error> refusal;                        // the newest
  // What the plans had in them.
  struct Met {
    std::int64_t slice_tokens = 0, copies = 0, forks = 0;
    std::int64_t resumed = 0, resumed_with_reuse = 0, resumed_from_zero = 0;
    std::int64_t scored = 0, computed_and_not_scored = 0;  // positions of prompts that are scored
  } met;
  StepLoad last_load;  // of the newest plan with slices

 private:
  struct Work {  // of one slice, as the arrays of a batch would hold it
    const RequestState* owner;
    std::string domain;
    std::int64_t first;
    std::vector<BlockId> table;
    std::vector<TokenId> tokens;
    std::int32_t in_flight_row;
    std::int64_t first_scored;
    std::int32_t num_scored;
  };
  struct Sample {
    RequestId request;
    std::int32_t slice;
  };
  struct Score {
    std::int64_t position;
    std::uint64_t hash;  // of the tokens up to there
  };
  struct InFlight {
    const StepPlan* plan;
    std::vector<Work> work;
    std::vector<PlannedCopy> copies;
    std::vector<Sample> samples;
    std::vector<TokenId> sampled;
    std::vector<FinishReason> verdicts;
    std::vector<Score> scores;
    StepLoad load;
    bool ran = false;
  };
  InFlight build(const StepPlan& plan) const;
  void check_plan(const StepPlan& plan) const;
  void check_progress(const StepPlan& plan) const;
  void meet(const StepPlan& plan);
  void check_domain(const Work& work);
  void check_no_early_reuse(const InFlight& step) const;
  void run(InFlight& step);
  void run_all();
  void commit_oldest();
  void hear(const Events& events, const std::vector<TokenId>& sampled, const std::vector<Score>& scores = {});
  void hear_scores(const Events& events, const std::vector<Score>& scores);

  FakeCache cache_;
  std::deque<InFlight> in_flight_;
  std::vector<TokenId> last_sampled_;  // of the newest step that ran
  std::map<RequestId, Asked> asked_;
  std::map<BlockId, std::string> domains_;  // who wrote the block
  std::map<std::pair<RequestId, std::int32_t>, std::uint64_t> epochs_;
  RequestId last_id_ = 0;
  bool fail_next_ = false;
};

}  // namespace folio
