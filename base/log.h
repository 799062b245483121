// Logging is spdlog behind this one header, so that what only computes builds with the standard library alone.
#pragma once
#include <string_view>

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

}  // namespace folio::log
