// Tenants: who always has requests waiting gets the share of its weight, and freed places go to the lowest counter.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

struct Range {
  int low, high;
};

// Requests of one tenant. Outputs end by a stop that nobody knows of before it comes, or by max_tokens.
struct Mix {
  const char* name;
  double weight;
  Range prompt;
  Range output;
  bool stops;
};

// Keeps `num_live` requests of each tenant there and counts the weighted tokens that each one gets.
class Crowd {
 public:
  Crowd(std::vector<Mix> mixes, std::uint64_t seed, Duration step, std::size_t num_live = 40)
      : mixes_(std::move(mixes)),
        random_(seed),
        step_(step),
        num_live_(num_live),
        blocks_(4000, 16),
        scheduler_(blocks_, limits(), clock_, weights(mixes_)) {}

  // Weighted tokens of each tenant in one step.
  std::map<std::string, double> step() {
    for (const Mix& mix : mixes_) {
      while (live_[mix.name] < num_live_) add(mix);
    }
    std::map<std::string, double> counters;
    for (const auto& [name, tenant] : tenants_) counters[name] = tenant->counter;
    const StepPlan& plan = scheduler_.schedule();
    check_admissions(plan, counters);
    std::map<std::string, double> got;
    for (const Slice& slice : plan.slices) {
      const Request& request = slice.sequence->owner->request;
      const auto in_prompt =
          std::min<std::int64_t>(slice.first + slice.count, slice.sequence->num_prompt_tokens()) - slice.first;
      got[request.tenant] += static_cast<double>(std::max<std::int64_t>(in_prompt, 0));
    }
    std::vector<FinishReason> verdicts;
    for (const PlannedSample& sample : plan.samples) {
      const RequestState& owner = *sample.sequence->owner;
      got[owner.request.tenant] += 2;
      const bool stops = sample.sequence->num_output_tokens() + 1 == stop_after_.at(owner.request.id);
      verdicts.push_back(stops ? FinishReason::kStopToken : FinishReason::kNone);
    }
    clock_.advance(step_);
    const std::vector<TokenId> tokens(plan.samples.size(), 1);
    for (const RequestSummary& summary : scheduler_.commit(plan, tokens, verdicts).ended) {
      --live_[tenant_of_.at(summary.request)];
    }
    return got;
  }

  // The largest distance of a tenant's share from that of its weight.
  struct Distance {
    double points = 0;    // of the whole
    double relative = 0;  // of the weight's share
  };
  int num_checked = 0;  // admissions
  Distance measure(int num_warm_steps, double num_weighted_tokens) {
    for (int i = 0; i < num_warm_steps; ++i) step();
    std::map<std::string, double> got;
    double sum = 0;
    while (sum < num_weighted_tokens) {
      for (const auto& [name, tokens] : step()) {
        got[name] += tokens;
        sum += tokens;
      }
    }
    double weights = 0;
    for (const Mix& mix : mixes_) weights += mix.weight;
    Distance most;
    for (const Mix& mix : mixes_) {
      const double share = mix.weight / weights;
      const double off = std::abs(got[mix.name] / sum - share);
      most = {std::max(most.points, off), std::max(most.relative, off / share)};
    }
    return most;
  }

 private:
  static SchedulerLimits limits() {
    return {.block_size = 16,
            .num_blocks = 4000,
            .max_context = 4096,
            .max_num_seqs = 16,
            .max_batch_tokens = 256,
            .max_queue = 1000,
            .prefix_cache = false};
  }
  static std::map<std::string, double> weights(const std::vector<Mix>& mixes) {
    std::map<std::string, double> weights;
    for (const Mix& mix : mixes) weights[mix.name] = mix.weight;
    return weights;
  }
  // Each place that was free went to the tenant whose counter was the lowest then, and it was charged for it.
  void check_admissions(const StepPlan& plan, std::map<std::string, double> counters) {
    std::map<std::uint64_t, const RequestState*> admitted;
    for (const Slice& slice : plan.slices) {
      const RequestState& owner = *slice.sequence->owner;
      tenants_[owner.request.tenant] = owner.tenant;
      if (slice.sequence->admission > last_admission_) admitted[slice.sequence->admission] = &owner;
    }
    if (counters.size() < mixes_.size()) admitted.clear();  // the first step: nobody was seen before it
    for (const auto& [admission, owner] : admitted) {
      const double counter = counters.at(owner->request.tenant);
      for (const auto& [name, other] : counters) ASSERT_LE(counter, other) << "a place went past tenant " << name;
      const double charge =
          static_cast<double>(owner->request.prompt.size()) + 2.0 * static_cast<double>(owner->request.max_tokens);
      counters[owner->request.tenant] += charge / owner->tenant->weight;
      ++num_checked;
    }
    last_admission_ = std::max(last_admission_, scheduler_.running().empty() ? 0 : newest_admission());
  }
  std::uint64_t newest_admission() const {
    std::uint64_t newest = 0;
    for (const Sequence* sequence : scheduler_.running()) newest = std::max(newest, sequence->admission);
    return newest;
  }
  int pick(Range range) { return std::uniform_int_distribution<int>(range.low, range.high)(random_); }
  void add(const Mix& mix) {
    Request request;
    request.id = ++last_id_;
    request.prompt.assign(static_cast<std::size_t>(pick(mix.prompt)), 1);
    request.tenant = mix.name;
    const int num_outputs = pick(mix.output);
    request.max_tokens = mix.stops ? 256 : num_outputs;
    stop_after_[request.id] = mix.stops ? num_outputs : 1000;
    tenant_of_[request.id] = mix.name;
    ++live_[mix.name];
    ASSERT_FALSE(scheduler_.submit(std::move(request)));
  }

  const std::vector<Mix> mixes_;
  std::mt19937_64 random_;
  const Duration step_;
  const std::size_t num_live_;
  BlockManager blocks_;
  ManualClock clock_;
  Scheduler scheduler_;
  std::map<std::string, const Tenant*> tenants_;  // as they never leave here
  std::uint64_t last_admission_ = 0;
  RequestId last_id_ = 0;
  std::map<RequestId, int> stop_after_;
  std::map<RequestId, std::string> tenant_of_;
  std::map<std::string, std::size_t> live_;
};

struct Case {
  const char* what;
  Mix a, b;
  double window = 10000;  // weighted tokens
};

const Case kCases[] = {
    {"equal weights, equal mixes", {"a", 1, {20, 200}, {16, 256}, false}, {"b", 1, {20, 200}, {16, 256}, false}},
    {"equal weights, all of 256", {"a", 1, {20, 200}, {256, 256}, false}, {"b", 1, {20, 200}, {256, 256}, false}},
    {"equal weights, short and long", {"a", 1, {20, 200}, {8, 32}, false}, {"b", 1, {20, 200}, {200, 256}, false}},
    {"equal weights, stops unknown", {"a", 1, {20, 200}, {16, 256}, true}, {"b", 1, {20, 200}, {16, 256}, true}},
    {"equal weights, short stops", {"a", 1, {20, 200}, {8, 32}, true}, {"b", 1, {20, 200}, {200, 256}, true}},
    {"equal weights, prompts differ",
     {"a", 1, {300, 900}, {16, 64}, true},
     {"b", 1, {5, 20}, {128, 256}, true},
     40000},  // a prompt is up to 9 % of 10,000
    {"3:1, equal mixes", {"a", 3, {20, 200}, {16, 256}, false}, {"b", 1, {20, 200}, {16, 256}, false}},
    {"3:1, all of 256", {"a", 3, {20, 200}, {256, 256}, false}, {"b", 1, {20, 200}, {256, 256}, false}},
    {"3:1, short and long", {"a", 3, {20, 200}, {8, 32}, false}, {"b", 1, {20, 200}, {200, 256}, false}},
    {"3:1, long and short", {"a", 3, {20, 200}, {200, 256}, false}, {"b", 1, {20, 200}, {8, 32}, false}},
    {"3:1, stops unknown", {"a", 3, {20, 200}, {16, 256}, true}, {"b", 1, {20, 200}, {16, 256}, true}},
    {"3:1, short stops", {"a", 3, {20, 200}, {8, 32}, true}, {"b", 1, {20, 200}, {200, 256}, true}},
};

TEST(SchedulerFairness, SharesOfTheNextTenThousandTokensFollowTheWeights) {
  for (const Case& each : kCases) {
    for (const Duration step : {Duration(std::chrono::milliseconds(1)), Duration(std::chrono::milliseconds(100))}) {
      Crowd::Distance most;
      double sum = 0;
      constexpr int kSeeds = 20;
      for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
        const Crowd::Distance distance = Crowd({each.a, each.b}, seed, step).measure(512, each.window);
        most = {std::max(most.points, distance.points), std::max(most.relative, distance.relative)};
        sum += distance.points;
      }
      if (std::getenv("FOLIO_PRINT")) {
        printf("%-32s %3d ms: at most %.2f points, %.2f %% relative; mean %.2f points\n", each.what,
               static_cast<int>(to_ms(step)), 100 * most.points, 100 * most.relative, 100 * sum / kSeeds);
      }
      EXPECT_LE(most.points, 0.05) << each.what << ", steps of " << to_ms(step) << " ms";
    }
  }
}

TEST(SchedulerFairness, EveryFreedPlaceGoesToTheLowestCounter) {
  const std::vector<Mix> mixes = {{"a", 1, {20, 200}, {16, 256}, false},
                                  {"b", 3, {5, 40}, {1, 60}, true},
                                  {"c", 0.5, {100, 300}, {100, 256}, false},
                                  {"d", 1, {1, 9}, {1, 256}, true}};
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Crowd crowd(mixes, seed, std::chrono::milliseconds(30));
    for (int i = 0; i < 1500; ++i) {
      crowd.step();
      ASSERT_FALSE(testing::Test::HasFatalFailure()) << "seed " << seed << " step " << i;
    }
    EXPECT_GT(crowd.num_checked, 100);
  }
}

}  // namespace
}  // namespace folio
