#include "engine/load_meter.h"

#include <algorithm>
#include <numeric>

namespace folio {
namespace {

std::int64_t second_of(TimePoint t) {
  return std::chrono::duration_cast<std::chrono::seconds>(t.time_since_epoch()).count();
}

}  // namespace

void LoadMeter::record(TimePoint now, double step_ms, std::int64_t prompt_tokens, std::int64_t output_tokens) {
  if (num_steps_ == 0)
    first_ = now - std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(step_ms));
  Second& second = seconds_[static_cast<std::size_t>(second_of(now) % kWindow)];
  if (second.number != second_of(now)) second = {second_of(now), 0, 0};
  second.prompt_tokens += prompt_tokens;
  second.output_tokens += output_tokens;
  last_ms_ = step_ms;
  step_ms_[num_steps_++ % kNumSteps] = step_ms;
}

double LoadMeter::mean_step_ms() const {
  const std::size_t n = std::min(num_steps_, kNumSteps);
  if (n == 0) return 0;
  return std::accumulate(step_ms_.begin(), step_ms_.begin() + static_cast<std::ptrdiff_t>(n), 0.0) /
         static_cast<double>(n);
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
