#include "engine/load_meter.h"

#include <algorithm>

namespace folio {
namespace {

std::int64_t second_of(TimePoint t) {
  return std::chrono::duration_cast<std::chrono::seconds>(t.time_since_epoch()).count();
}

}  // namespace

void LoadMeter::record(TimePoint now, const StepPhases& step, std::int64_t prompt_tokens, std::int64_t output_tokens) {
  const double step_ms = step.total_ms();
  if (num_steps_ == 0)
    first_ = now - std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(step_ms));
  Second& second = seconds_[static_cast<std::size_t>(second_of(now) % kWindow)];
  if (second.number != second_of(now)) second = {second_of(now), 0, 0};
  second.prompt_tokens += prompt_tokens;
  second.output_tokens += output_tokens;
  last_ms_ = step_ms;
  steps_[num_steps_++ % kNumSteps] = step;
}

StepPhases LoadMeter::mean_step() const {
  const std::size_t n = std::min(num_steps_, kNumSteps);
  StepPhases mean;
  for (std::size_t i = 0; i < n; ++i) {
    const auto add = [n](double& to, double ms) { to += ms / static_cast<double>(n); };
    add(mean.schedule_ms, steps_[i].schedule_ms);
    add(mean.build_ms, steps_[i].build_ms);
    add(mean.forward_ms, steps_[i].forward_ms);
    add(mean.sample_ms, steps_[i].sample_ms);
    add(mean.commit_ms, steps_[i].commit_ms);
  }
  return mean;
}

double LoadMeter::rate(TimePoint now, std::int64_t Second::*tokens) const {
  const std::int64_t oldest = second_of(now) - kWindow + 1;
  std::int64_t sum = 0;
  for (const Second& second : seconds_) {
    if (second.number >= oldest) sum += second.*tokens;
  }
  const TimePoint begin = std::max(first_, TimePoint(std::chrono::seconds(oldest)));
  const double elapsed = std::chrono::duration<double>(now - begin).count();
  return sum == 0 ? 0.0 : static_cast<double>(sum) / std::max(elapsed, 1e-3);
}

}  // namespace folio
