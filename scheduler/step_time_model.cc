#include "scheduler/step_time_model.h"

#include <algorithm>
#include <cmath>

namespace folio {
namespace {

constexpr double kForgetting = 0.98;     // a step counts half after 34 more
constexpr double kMostSurprising = 3.0;  // what takes more times longer than predicted was disturbed from outside
constexpr double kMaxMs = 1e7;
constexpr double kLeastMs = 1e-3;
constexpr double kLeastPace = 1e-3;
constexpr double kPaceGain = 0.2;  // of a step's surprise in what is believed of the machine's pace
constexpr double kErrorGain = 0.1;
constexpr int kSweeps = 8;

}  // namespace

StepTimeModel::Vector StepTimeModel::features(const StepLoad& load) {
  return {1.0, static_cast<double>(load.rows) / kScales[1], static_cast<double>(load.pairs) / kScales[2],
          static_cast<double>(load.keys) / kScales[3], static_cast<double>(load.logit_rows) / kScales[4]};
}

double StepTimeModel::dot(const Vector& x) const {
  double sum = 0;
  for (std::size_t i = 0; i < kSize; ++i) sum += weights_[i] * x[i];
  return sum;
}

Duration StepTimeModel::predict(const StepLoad& load) const {
  const double ms = std::min(pace_ * dot(features(load)), kMaxMs);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

Duration StepTimeModel::usual_error() const {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(error_ms_));
}

StepTimes StepTimeModel::times() const {
  const auto each = [this](std::size_t i) { return pace_ * weights_[i] / kScales[i]; };
  return {each(0), each(1), each(2), each(3), each(4), error_ms_, num_samples_, trusted_rows_};
}

void StepTimeModel::observe(const StepLoad& load, Duration took) {
  const Vector x = features(load);
  double ms = std::clamp(to_ms(took), 0.0, kMaxMs);
  if (is_ready()) {
    const double expected = std::max(dot(x), kLeastMs);
    error_ms_ += kErrorGain * (std::abs(ms - pace_ * expected) - error_ms_);
    ms = std::min(ms, kMostSurprising * pace_ * expected);
    pace_ = std::max(pace_ + kPaceGain * (ms / expected - pace_), kLeastPace);
    ms /= pace_;
  }
  for (std::size_t i = 0; i < kSize; ++i) {
    for (std::size_t j = 0; j < kSize; ++j) products_[i][j] = kForgetting * products_[i][j] + x[i] * x[j];
    times_[i] = kForgetting * times_[i] + x[i] * ms;
  }
  for (int sweep = 0; sweep < kSweeps; ++sweep) improve();
  ++num_samples_;
  trusted_rows_ = std::max(trusted_rows_, 2 * load.rows);
}

// Each weight in turn becomes the best one, of those that are not negative, beside the others as they are.
void StepTimeModel::improve() {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (products_[i][i] <= 0) continue;  // nothing was seen of it yet
    double rest = times_[i];
    for (std::size_t j = 0; j < kSize; ++j) rest -= j == i ? 0.0 : products_[i][j] * weights_[j];
    weights_[i] = std::max(0.0, rest / products_[i][i]);
  }
}

}  // namespace folio
