#include "base/log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

namespace folio::log {
namespace {

struct Loggers {
  Loggers() {
    text.set_pattern("%Y-%m-%d %H:%M:%S.%e %l: %v");
    json.set_pattern(R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%v"})");
  }
  spdlog::logger text{"text", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  spdlog::logger json{"json", std::make_shared<spdlog::sinks::stderr_sink_mt>()};
  std::atomic<bool> use_json{false};
};

// Never destroyed, so that a thread that outlives main's statics may still log.
Loggers& loggers() {
  static Loggers* const instance = new Loggers;
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Bytes of the well-formed UTF-8 character at `at` (Unicode 15, table 3-7), or 0.
std::size_t utf8_length(std::string_view s, std::size_t at) {
  const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0U; };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned lead = byte(at);
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return tail(at + 1) ? 2 : 0;
  const unsigned second = byte(at + 1);
  if (lead >= 0xE0 && lead <= 0xEF) {
    const unsigned low = lead == 0xE0 ? 0xA0 : 0x80;
    const unsigned high = lead == 0xED ? 0x9F : 0xBF;
    return second >= low && second <= high && tail(at + 2) ? 3 : 0;
  }
  if (lead >= 0xF0 && lead <= 0xF4) {
    const unsigned low = lead == 0xF0 ? 0x90 : 0x80;
    const unsigned high = lead == 0xF4 ? 0x8F : 0xBF;
    return second >= low && second <= high && tail(at + 2) && tail(at + 3) ? 4 : 0;
  }
  return 0;
}

// C0 controls, DEL, C1 controls (terminals obey some), and the two separators that some viewers break lines at.
bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return (first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0) || character == "\xE2\x80\xA8" ||
         character == "\xE2\x80\xA9";
}

void append_hex(std::string& out, std::string_view prefix, unsigned char byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  out += prefix;
  out += kDigits[byte >> 4];
  out += kDigits[byte & 15];
}

// Control characters and bytes that are no UTF-8 become \n, \t, \r or \xNN; JSON gets \u00NN in place of \xNN, and its
// quotes and backslashes escaped.
std::string escape(std::string_view message, bool json) {
  std::string out;
  out.reserve(message.size() + 16);
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t length = utf8_length(message, at);
    const std::string_view character = message.substr(at, length == 0 ? 1 : length);
    at += character.size();
    if (character == "\n" || character == "\r" || character == "\t") {
      out += character == "\n" ? "\\n" : character == "\r" ? "\\r" : "\\t";
    } else if (length == 0 || is_control(character)) {
      for (const char c : character) append_hex(out, json ? "\\u00" : "\\x", static_cast<unsigned char>(c));
    } else {
      if (json && (character == "\"" || character == "\\")) out += '\\';
      out += character;
    }
  }
  return out;
}

}  // namespace

void write(Level level, std::string_view message) {
  Loggers& all = loggers();
  const spdlog::level::level_enum as = to_spdlog(level);
  const bool json = all.use_json.load(std::memory_order_relaxed);
  spdlog::logger& logger = json ? all.json : all.text;
  if (!logger.should_log(as)) return;
  logger.log(as, spdlog::string_view_t(escape(message, json)));
}

bool enabled(Level level) {
  Loggers& all = loggers();
  return (all.use_json.load(std::memory_order_relaxed) ? all.json : all.text).should_log(to_spdlog(level));
}

void Limited::write(std::string_view message, TimePoint now) {
  if (!enabled(level_)) return;
  std::int64_t num_left_out = 0;
  {
    const std::lock_guard lock(mutex_);
    if (now - period_start_ >= kPeriod) {
      period_start_ = now;
      num_written_ = 0;
    }
    if (num_written_ >= kRecords) {
      ++num_left_out_;
      return;
    }
    ++num_written_;
    num_left_out = std::exchange(num_left_out_, 0);
  }
  if (num_left_out == 0) return log::write(level_, message);
  log::write(level_, std::string(message) + " (" + std::to_string(num_left_out) + " like it before were left out)");
}

void set_level(Level level) {
  loggers().text.set_level(to_spdlog(level));
  loggers().json.set_level(to_spdlog(level));
}

void set_json(bool json) {
  loggers().use_json.store(json, std::memory_order_relaxed);
}

}  // namespace folio::log
