// Rates and step times for LoadSnapshot. One thread at a time.
#pragma once
#include <array>
#include <cstdint>

#include "base/clock.h"

namespace folio {

// The times of a step's phases, in the order in which they follow each other.
struct StepPhases {
  double schedule_ms = 0, build_ms = 0, forward_ms = 0, sample_ms = 0, commit_ms = 0;

  double total_ms() const { return schedule_ms + build_ms + forward_ms + sample_ms + commit_ms; }
};

class LoadMeter {
 public:
  // A step that ended now, and the tokens that it computed and made.
  void record(TimePoint now, const StepPhases& step, std::int64_t prompt_tokens, std::int64_t output_tokens);

  // Over the last kWindow seconds, or since the first step if that is less: 0 again after an idle time.
  double prompt_tokens_per_second(TimePoint now) const { return rate(now, &Second::prompt_tokens); }
  double output_tokens_per_second(TimePoint now) const { return rate(now, &Second::output_tokens); }
  double last_step_ms() const { return last_ms_; }
  StepPhases mean_step() const;  // of the last kNumSteps

 private:
  static constexpr std::int64_t kWindow = 5;
  static constexpr std::size_t kNumSteps = 64;
  struct Second {
    std::int64_t number = -1;  // of the clock
    std::int64_t prompt_tokens = 0;
    std::int64_t output_tokens = 0;
  };
  double rate(TimePoint now, std::int64_t Second::*tokens) const;

  std::array<Second, kWindow> seconds_;  // by number % kWindow
  std::array<StepPhases, kNumSteps> steps_{};
  std::size_t num_steps_ = 0;
  double last_ms_ = 0;
  TimePoint first_{};
};

}  // namespace folio
