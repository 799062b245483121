// The step-time model learns what steps cost from steps alone.
#include "scheduler/step_time_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/scheduler/world.h"

namespace folio {
namespace {

// Loads like those of a server: some outputs at some context, sometimes a chunk.
class Loads {
 public:
  explicit Loads(std::uint64_t seed) : random_(seed) {}
  StepLoad next() {
    StepLoad load;
    for (int i = 0, outputs = pick(0, 32); i < outputs; ++i) load.add_slice(pick(0, 4000), 1, 1);
    if (load.rows == 0 || pick(0, 2) == 0) load.add_slice(pick(0, 3000), pick(1, 256), pick(0, 1));
    return load;
  }
  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  double noise(double most) { return std::uniform_real_distribution<double>(1 - most, 1 + most)(random_); }

 private:
  std::mt19937_64 random_;
};

double worst_error(const StepTimeModel& model, const std::function<Duration(const StepLoad&)>& cost, Loads& loads) {
  double worst = 0;
  for (int i = 0; i < 300; ++i) {
    const StepLoad load = loads.next();
    worst = std::max(worst, std::abs(to_ms(model.predict(load)) / to_ms(cost(load)) - 1));
  }
  return worst;
}

// Milliseconds for {step, row, pair, K/V row, logit row}.
const std::function<Duration(const StepLoad&)> kCosts[] = {
    linear_cost(5, 0.4, 0.00005, 0.0002, 0.05), linear_cost(0.5, 0.02, 0.00001, 0.00001, 0.01),
    linear_cost(20, 2, 0.0005, 0.001, 1),       linear_cost(3, 0.5, 0, 0, 0),
    linear_cost(0, 0.3, 0.0001, 0.0004, 0.2),
};

TEST(StepTimeModel, SaysWhatItLearnt) {
  Loads loads(2);
  StepTimeModel model;
  EXPECT_EQ(model.times().num_samples, 0);
  EXPECT_EQ(model.times().base_ms, 0);
  const auto cost = linear_cost(5, 0.4, 0.00005, 0.0002, 0.05);
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = loads.next();
    model.observe(load, cost(load) * 2);  // the machine has a pace of its own: it is in every number
  }
  const StepTimes times = model.times();
  EXPECT_EQ(times.num_samples, 400);
  EXPECT_EQ(times.trusted_rows, model.trusted_rows());
  EXPECT_LT(times.usual_error_ms, 1);
  for (int i = 0; i < 100; ++i) {
    const StepLoad load = loads.next();
    const double ms = times.base_ms + times.row_ms * static_cast<double>(load.rows) +
                      times.pair_ms * static_cast<double>(load.pairs) + times.key_ms * static_cast<double>(load.keys) +
                      times.logit_row_ms * static_cast<double>(load.logit_rows);
    EXPECT_NEAR(ms, to_ms(model.predict(load)), 1e-3);
    EXPECT_NEAR(ms, 2 * to_ms(cost(load)), 0.06 * ms);
  }
}

TEST(StepTimeModel, RecoversTheCostOfVariedSteps) {
  for (const auto& cost : kCosts) {
    Loads loads(1);
    StepTimeModel model;
    EXPECT_FALSE(model.is_ready());
    for (int i = 0; i < 400; ++i) {
      const StepLoad load = loads.next();
      model.observe(load, cost(load));
    }
    EXPECT_TRUE(model.is_ready());
    EXPECT_LT(worst_error(model, cost, loads), 0.03);
    // Each weight by itself, as a difference between two loads.
    const StepLoad base{.rows = 100, .pairs = 100000, .keys = 10000, .logit_rows = 10};
    const auto slope = [&](StepLoad more, const auto& of) { return to_ms(of(more)) - to_ms(of(base)); };
    const auto predicted = [&](const StepLoad& load) { return model.predict(load); };
    const double whole = to_ms(cost(base));
    for (const auto& [rows, pairs, keys, logits] :
         {std::tuple(100, 0, 0, 0), std::tuple(0, 100000, 0, 0), std::tuple(0, 0, 10000, 0), std::tuple(0, 0, 0, 10)}) {
      const StepLoad more{base.rows + rows, base.pairs + pairs, base.keys + keys, base.logit_rows + logits};
      EXPECT_NEAR(slope(more, predicted), slope(more, cost), 0.02 * whole);
    }
  }
}

TEST(StepTimeModel, IsNotLedAstrayByNoise) {
  for (const auto& cost : kCosts) {
    Loads loads(2);
    StepTimeModel model;
    for (int i = 0; i < 1000; ++i) {
      const StepLoad load = loads.next();
      model.observe(load, std::chrono::duration_cast<Duration>(cost(load) * loads.noise(0.1)));
    }
    EXPECT_LT(worst_error(model, cost, loads), 0.25);
  }
}

// Steps of one kind teach little about others: then at least nothing absurd is said of them.
TEST(StepTimeModel, AfterManyEqualStepsKnowsThemAndNothingAbsurd) {
  const auto cost = kCosts[0];
  StepTimeModel model;
  StepLoad load;
  for (int i = 0; i < 8; ++i) load.add_slice(500, 1, 1);
  for (int i = 0; i < 20000; ++i) model.observe(load, cost(load));
  EXPECT_NEAR(to_ms(model.predict(load)), to_ms(cost(load)), 0.01 * to_ms(cost(load)));
  StepLoad with_chunk = load;
  with_chunk.add_slice(0, 64, 0);
  EXPECT_GE(model.predict(with_chunk), model.predict(load));
  Loads loads(3);
  for (int i = 0; i < 200; ++i) {
    const StepLoad other = loads.next();
    model.observe(other, cost(other));
  }
  EXPECT_LT(worst_error(model, cost, loads), 0.1);
}

TEST(StepTimeModel, FollowsASuddenSlowdown) {
  const auto cost = kCosts[0];
  const auto slow = [&](const StepLoad& load) { return 3 * cost(load); };
  Loads loads(4);
  StepTimeModel model;
  for (int i = 0; i < 1000; ++i) {
    const StepLoad load = loads.next();
    model.observe(load, cost(load));
  }
  for (int i = 0; i < 15; ++i) {
    const StepLoad load = loads.next();
    model.observe(load, slow(load));
  }
  EXPECT_LT(worst_error(model, slow, loads), 0.15);
}

TEST(StepTimeModel, OneStepThatWasHeldUpFromOutsideChangesLittle) {
  const auto cost = kCosts[0];
  Loads loads(5);
  StepTimeModel model;
  for (int i = 0; i < 500; ++i) {
    const StepLoad load = loads.next();
    model.observe(load, cost(load));
  }
  const StepLoad load = loads.next();
  model.observe(load, std::chrono::seconds(30));
  EXPECT_LT(worst_error(model, cost, loads), 0.6);
  for (int i = 0; i < 50; ++i) {
    const StepLoad usual = loads.next();
    model.observe(usual, cost(usual));
  }
  EXPECT_LT(worst_error(model, cost, loads), 0.15);
}

TEST(StepTimeModel, IsNeverNegativeAndNeverLessForMoreWork) {
  Loads loads(6);
  StepTimeModel model;
  for (int i = 0; i < 2000; ++i) {
    const StepLoad load = loads.next();
    EXPECT_GE(model.predict(load), Duration::zero());
    StepLoad more = load;
    more.add_slice(loads.pick(0, 100), loads.pick(1, 50), 1);
    EXPECT_GE(model.predict(more), model.predict(load));
    model.observe(load, std::chrono::microseconds(loads.pick(0, 50000)));  // no rule in it
  }
}

TEST(StepTimeModel, TrustsTwiceTheRowsItHasSeen) {
  StepTimeModel model;
  EXPECT_EQ(model.trusted_rows(), 64);
  model.observe({.rows = 100, .pairs = 100, .keys = 100, .logit_rows = 0}, std::chrono::milliseconds(1));
  EXPECT_EQ(model.trusted_rows(), 200);
}

}  // namespace
}  // namespace folio
