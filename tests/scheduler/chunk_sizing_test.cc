// With a target for the time between tokens, a long prompt is prefilled in chunks as large as the target allows.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

using std::chrono::milliseconds;

SchedulerLimits limits_of(Duration target) {
  return {.block_size = 16,
          .num_blocks = 2000,
          .max_context = 8192,
          .max_num_seqs = 16,
          .max_batch_tokens = 512,
          .max_queue = 100,
          .prefix_cache = false,
          .target_itl = target};
}

// A machine that takes 10 ms for a step and 0.5 ms for a row: 80 rows fit 50 ms.
const auto kCost = linear_cost(10, 0.5, 0.00002, 0.0005, 0.05);

// Eight running streams, and the model has seen them and some prompts of other sizes.
void warm_up(World& world) {
  for (int i = 0; i < 8; ++i) world.submit(30 + 20 * i, 3000);
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 60; ++j) world.step();
    world.submit(100 + 90 * i, 2);
  }
  for (int j = 0; j < 60; ++j) world.step();
}

struct Gaps {
  std::vector<double> ms;
  std::vector<std::int64_t> chunks;
  double p(double q) {
    std::sort(ms.begin(), ms.end());
    return ms.at(static_cast<std::size_t>(q * static_cast<double>(ms.size() - 1)));
  }
};

// The steps' times from now until the newcomer's first token: each is a gap of all running streams.
Gaps prefill(World& world, std::int64_t num_prompt) {
  const RequestId newcomer = world.submit(num_prompt, 5);
  Gaps gaps;
  while (world.told(newcomer).outputs.empty()) {
    const TimePoint before = world.clock.now();
    const std::int64_t tokens = world.met.slice_tokens;
    world.step();
    gaps.ms.push_back(to_ms(world.clock.now() - before));
    gaps.chunks.push_back(world.met.slice_tokens - tokens - 8);
  }
  return gaps;
}

TEST(ChunkSizing, KeepsTheTargetAndWastesNoneOfIt) {
  World world(limits_of(milliseconds(50)));
  world.step_cost = kCost;
  warm_up(world);
  Gaps gaps = prefill(world, 4096);
  const auto num_steps = static_cast<std::int64_t>(gaps.chunks.size());
  RecordProperty("p99_us", static_cast<int>(1000 * gaps.p(0.99)));
  RecordProperty("steps", static_cast<int>(num_steps));
  EXPECT_LE(gaps.p(1), 50 * 1.05);
  EXPECT_GE(gaps.p(0.1), 50 * 0.85) << "time is left that a larger chunk would have used";
  EXPECT_LE(num_steps, 4096 / 58);
}

TEST(ChunkSizing, WithoutATargetAChunkHasTheWholeBudget) {
  World world(limits_of(Duration::zero()));
  world.step_cost = kCost;
  warm_up(world);
  Gaps gaps = prefill(world, 4096);
  EXPECT_GE(gaps.p(0.5), 200);
  EXPECT_EQ(gaps.chunks.front(), 504);
}

TEST(ChunkSizing, WithoutRunningStreamsThereIsNothingToKeep) {
  World world(limits_of(milliseconds(50)));
  world.step_cost = kCost;
  const RequestId alone = world.submit(4096, 3);
  EXPECT_EQ(world.step(), std::to_string(alone) + ":512");
  world.run_to_end();
}

TEST(ChunkSizing, ATargetThatCannotBeKeptStillLetsPromptsThrough) {
  World world(limits_of(milliseconds(2)));  // less than an empty step takes
  world.step_cost = kCost;
  warm_up(world);
  Gaps gaps = prefill(world, 400);
  for (const std::int64_t chunk : gaps.chunks) EXPECT_GE(chunk, 1);
  EXPECT_LE(gaps.chunks.size(), 400U / Scheduler::kMinChunk + 1);
}

TEST(ChunkSizing, FollowsAMachineThatGetsThreeTimesSlower) {
  World world(limits_of(milliseconds(100)));
  world.step_cost = kCost;
  warm_up(world);
  prefill(world, 2048);
  world.step_cost = [](const StepLoad& load) { return 3 * kCost(load); };
  Gaps learning = prefill(world, 2048);
  for (std::size_t i = 10; i < learning.ms.size(); ++i) EXPECT_LE(learning.ms[i], 100 * 1.15) << "after ten steps";
  const auto expect_followed = [](Gaps gaps, const char* what) {
    EXPECT_LE(gaps.p(0.9), 100 * 1.15) << what;
    EXPECT_LE(gaps.p(1), 100 * 1.5) << what;
    EXPECT_GE(gaps.p(0.1), 100 * 0.7) << what;
  };
  expect_followed(prefill(world, 2048), "slow");
  world.step_cost = kCost;
  prefill(world, 4096);
  expect_followed(prefill(world, 4096), "and back");
}

TEST(ChunkSizing, KeepsTheTargetAcrossManyMachines) {
  struct Machine {
    double step, row, pair, key, logits;
  };
  for (const Machine& m : {Machine{2, 0.05, 0.000002, 0.00005, 0.01}, Machine{15, 0.9, 0.00001, 0.001, 0.1},
                           Machine{0.5, 0.3, 0.00005, 0.0001, 0}, Machine{30, 0.1, 0.00001, 0, 0.5}}) {
    World world(limits_of(milliseconds(50)));
    world.step_cost = linear_cost(m.step, m.row, m.pair, m.key, m.logits);
    warm_up(world);
    Gaps gaps = prefill(world, 4096);
    const bool budget_binds = gaps.chunks[1] >= 504;
    EXPECT_LE(gaps.p(0.99), 50 * 1.1) << "row " << m.row;
    EXPECT_TRUE(budget_binds || gaps.p(0.1) >= 50 * 0.75) << "row " << m.row << ": " << gaps.p(0.1) << " ms";
  }
}

}  // namespace
}  // namespace folio
