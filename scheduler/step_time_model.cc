#include "scheduler/step_time_model.h"

#include <algorithm>
#include <cmath>

namespace folio {
namespace {

constexpr double kForgetting = 0.99;  // a step counts half after 69 more
constexpr double kUnknown = 1e4;      // variance of a weight of which nothing is known
constexpr double kMostSurprising =
    3.0;  // a step that takes more times longer than predicted was disturbed from outside
constexpr double kMaxMs = 1e7;

}  // namespace

StepTimeModel::StepTimeModel() {
  for (std::size_t i = 0; i < kSize; ++i) covariance_[i][i] = kUnknown;
}

// Scaled so that a usual step has all of them around 1.
StepTimeModel::Vector StepTimeModel::features(const StepLoad& load) {
  return {1.0, static_cast<double>(load.rows) / 64, static_cast<double>(load.pairs) / 65536,
          static_cast<double>(load.keys) / 8192, static_cast<double>(load.logit_rows) / 16};
}

double StepTimeModel::dot(const Vector& x) const {
  double sum = 0;
  for (std::size_t i = 0; i < kSize; ++i) sum += std::max(weights_[i], 0.0) * x[i];
  return sum;
}

Duration StepTimeModel::predict(const StepLoad& load) const {
  const double ms = std::min(dot(features(load)), kMaxMs);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double, std::milli>(ms));
}

void StepTimeModel::observe(const StepLoad& load, Duration took) {
  const Vector x = features(load);
  double ms = std::clamp(to_ms(took), 0.0, kMaxMs);
  if (is_ready()) ms = std::min(ms, kMostSurprising * std::max(dot(x), 1.0));
  Vector px{};
  for (std::size_t i = 0; i < kSize; ++i) {
    for (std::size_t j = 0; j < kSize; ++j) px[i] += covariance_[i][j] * x[j];
  }
  double scale = kForgetting;
  double residual = ms;
  for (std::size_t i = 0; i < kSize; ++i) {
    scale += x[i] * px[i];
    residual -= weights_[i] * x[i];
  }
  double trace = 0;
  for (std::size_t i = 0; i < kSize; ++i) {
    weights_[i] += px[i] / scale * residual;
    for (std::size_t j = 0; j < kSize; ++j) covariance_[i][j] -= px[i] * px[j] / scale;
    trace += covariance_[i][i];
  }
  // Forgetting without news makes the covariance grow without end: no more than when nothing was known.
  const double grow = trace / kForgetting < kUnknown * kSize ? 1 / kForgetting : 1.0;
  for (Vector& row : covariance_) {
    for (double& value : row) value *= grow;
  }
  ++num_samples_;
  trusted_rows_ = std::max(trusted_rows_, 2 * load.rows);
}

}  // namespace folio
