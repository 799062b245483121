// Mean time of a step by phase, prefill steps and decode steps apart.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "bench/table.h"
#include "engine/engine.h"

namespace folio::bench {

// The engine's own phases around the forward's, in the order of a step. "other" is what lies between two steps of a
// run (the inbox, delivery to the streams, the load figures), and all of the forward where a model knows no phases.
inline constexpr std::array kPhasesBefore = {"schedule", "build"};
inline constexpr std::array kPhasesAfter = {"sample", "commit", "other"};
inline constexpr std::size_t kNumPhases = kPhasesBefore.size() + kNumForwardPhases + kPhasesAfter.size();

// Steps since it was cleared. Written on the engine thread, read when the engine is idle.
class PhaseMeter {
 public:
  void add(const StepRecord& step, TimePoint now);
  void start_run() { last_.reset(); }  // the time until the run's first step is nobody's

  Row json() const;  // {"prefill": {"steps": n, "step_us": mean, "us": {phase: mean}}, "decode": {...}}
  // One row a phase that took time, each beginning with the case's fields.
  void print(Table& table, const Row& of_case) const;

 private:
  struct Sums {
    std::int64_t steps = 0;
    std::array<double, kNumPhases> us{};
    double total() const;
  };
  std::array<Sums, 2> sums_;  // of steps with prefill slices, and of those that only decode
  std::optional<TimePoint> last_;
};

}  // namespace folio::bench
