// Logging is spdlog behind this one header, so that what only computes builds with the standard library alone.
#pragma once
#include <cstdint>
#include <mutex>
#include <string_view>

#include "base/clock.h"

namespace folio::log {

enum class Level { kDebug, kInfo, kWarn, kError };
// Any thread. One record per call: control characters in `message` are escaped, so input cannot forge a line.
void write(Level level, std::string_view message);
void set_level(Level level);
void set_json(bool json);

inline void debug(std::string_view message) {
  write(Level::kDebug, message);
}
inline void info(std::string_view message) {
  write(Level::kInfo, message);
}
inline void warn(std::string_view message) {
  write(Level::kWarn, message);
}
inline void error(std::string_view message) {
  write(Level::kError, message);
}

bool enabled(Level level);

// For records that others can cause at will, such as a library's about what a peer sent: in each period of ten seconds
// the first ten, and with the next one after that how many were left out. Any thread.
class Limited {
 public:
  static constexpr int kRecords = 10;
  static constexpr Duration kPeriod = std::chrono::seconds(10);

  explicit Limited(Level level) : level_(level) {}
  void write(std::string_view message) { write(message, std::chrono::steady_clock::now()); }
  void write(std::string_view message, TimePoint now);

 private:
  const Level level_;
  std::mutex mutex_;
  TimePoint period_start_{};
  int num_written_ = 0;  // in this period
  std::int64_t num_left_out_ = 0;
};

}  // namespace folio::log
