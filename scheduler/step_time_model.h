// How long a step takes, learnt while serving: linear in {1, rows, query-key pairs, K/V rows read, logit rows}. Least
// squares with forgetting and without negative weights, which would make more work look cheaper: solved by a few sweeps
// of coordinate descent from the weights before (V. Franc, V. Hlavac, M. Navara, "Sequential Coordinate-Wise Algorithm
// for the Non-negative Least Squares Problem", 2005). What recent steps do not tell apart stays as it was. A machine
// that gets slower does so for all kinds of work: that pace is followed at once, the weights learn what is left. One
// thread.
#pragma once
#include <array>
#include <cstdint>

#include "base/clock.h"

namespace folio {

// What a step has to do, as far as its time depends on it.
struct StepLoad {
  std::int64_t rows = 0;   // tokens
  std::int64_t pairs = 0;  // keys that each of them sees, summed
  std::int64_t keys = 0;   // K/V rows read: the contexts, summed
  std::int64_t logit_rows = 0;

  void add_slice(std::int64_t first, std::int64_t count, std::int64_t num_logits) {
    rows += count;
    pairs += count * first + count * (count + 1) / 2;
    keys += first + count;
    logit_rows += num_logits;
  }
};

// What the model has learnt, as plain numbers: a step takes base + row * rows + pair * pairs + key * keys +
// logit_row * logit_rows, in milliseconds each.
struct StepTimes {
  double base_ms = 0, row_ms = 0, pair_ms = 0, key_ms = 0, logit_row_ms = 0;
  double usual_error_ms = 0;
  std::int64_t num_samples = 0;   // steps it was learnt from; fewer than kMinSamples say little
  std::int64_t trusted_rows = 0;  // of a step with more than these it knows nothing
};

class StepTimeModel {
 public:
  static constexpr std::int64_t kMinSamples = 20;  // before them predictions are not to be relied on

  void observe(const StepLoad& load, Duration took);
  // Never negative, and never less for more work.
  Duration predict(const StepLoad& load) const;
  // What a prediction was wrong by, on average of the last steps, whichever way.
  Duration usual_error() const;
  StepTimes times() const;
  bool is_ready() const { return num_samples_ >= kMinSamples; }
  // No step with more rows than this should be planned by predictions: twice the most seen.
  std::int64_t trusted_rows() const { return trusted_rows_; }

 private:
  static constexpr std::size_t kSize = 5;
  using Vector = std::array<double, kSize>;
  static constexpr Vector kScales = {1.0, 64.0, 65536.0, 8192.0, 16.0};  // a usual step has all features around 1
  static Vector features(const StepLoad& load);
  double dot(const Vector& x) const;

  void improve();

  Vector weights_{};                      // milliseconds for each feature
  std::array<Vector, kSize> products_{};  // the sum of x x^T over the steps, those long ago for less
  Vector times_{};                        // likewise of x times the step's milliseconds
  double error_ms_ = 0;
  double pace_ = 1;  // of the machine now, over that of the weights
  std::int64_t num_samples_ = 0;
  std::int64_t trusted_rows_ = 64;
};

}  // namespace folio
