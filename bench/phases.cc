#include "bench/phases.h"

#include <algorithm>
#include <numeric>

namespace folio::bench {
namespace {

constexpr std::array kKinds = {"prefill", "decode"};

const char* phase_name(std::size_t phase) {
  if (phase < kPhasesBefore.size()) return kPhasesBefore[phase];
  phase -= kPhasesBefore.size();
  return phase < kNumForwardPhases ? kForwardPhaseNames[phase] : kPhasesAfter[phase - kNumForwardPhases];
}

}  // namespace

double PhaseMeter::Sums::total() const {
  return std::accumulate(us.begin(), us.end(), 0.0);
}

void PhaseMeter::add(const StepRecord& step, TimePoint now) {
  Sums& sums = sums_[step.num_prefill_slices > 0 ? 0 : 1];
  ++sums.steps;
  const double step_ms = step.schedule_ms + step.build_ms + step.forward_ms + step.sample_ms + step.commit_ms;
  double other_ms = std::max(0.0, step.forward_ms - static_cast<double>(step.forward.pass_ns()) / 1e6);
  if (last_) other_ms += std::max(0.0, to_ms(now - *last_) - step_ms);
  last_ = now;
  double* us = sums.us.data();
  for (const double ms : {step.schedule_ms, step.build_ms}) *us++ += ms * 1000;
  for (const std::int64_t ns : step.forward.ns) *us++ += static_cast<double>(ns) / 1000;
  for (const double ms : {step.sample_ms, step.commit_ms, other_ms}) *us++ += ms * 1000;
}

Row PhaseMeter::json() const {
  Row all = Row::object();
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    const Sums& sums = sums_[kind];
    if (sums.steps == 0) continue;
    const auto steps = static_cast<double>(sums.steps);
    Row means = Row::object();
    for (std::size_t i = 0; i < kNumPhases; ++i) means[phase_name(i)] = rounded(sums.us[i] / steps, 2);
    all[kKinds[kind]] = {{"steps", sums.steps}, {"step_us", rounded(sums.total() / steps, 1)}, {"us", means}};
  }
  return all;
}

void PhaseMeter::print(Table& table, const Row& of_case) const {
  for (std::size_t kind = 0; kind < kKinds.size(); ++kind) {
    const Sums& sums = sums_[kind];
    for (std::size_t i = 0; i < kNumPhases; ++i) {
      if (sums.us[i] == 0) continue;
      Row row = of_case;
      row["steps"] = kKinds[kind];
      row["phase_of_step"] = phase_name(i);
      row["us_a_step"] = rounded(sums.us[i] / static_cast<double>(sums.steps), 1);
      row["percent"] = rounded(100 * sums.us[i] / sums.total(), 1);
      table.print(row);
    }
  }
}

}  // namespace folio::bench
