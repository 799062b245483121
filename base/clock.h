// Time is read through an injected clock, so that tests own it.
#pragma once
#include <chrono>

namespace folio {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;
inline constexpr TimePoint kNoDeadline = TimePoint::max();

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;  // any thread
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

inline double to_ms(Duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

}  // namespace folio
