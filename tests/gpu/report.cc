#include "tests/gpu/report.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <utility>

namespace folio::gpu {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

Report::Report(std::string part, std::string path) : part_(std::move(part)), path_(std::move(path)) {
  write();
}

void Report::check(const std::string& name, bool holds, const std::string& seen) {
  ++num_checks_;
  if (!holds) {
    failures_.push_back({name, "", seen});
    std::printf("FAILED %s: %s%s%s\n", part_.c_str(), name.c_str(), seen.empty() ? "" : ": ", seen.c_str());
    std::fflush(stdout);
  }
  write();
}

void Report::figure(const std::string& name, double value, const std::string& unit) {
  figures_.push_back({name, number(value), unit});
  std::printf("%-14s %-58s %10s %s\n", part_.c_str(), name.c_str(), number(value).c_str(), unit.c_str());
  std::fflush(stdout);
  write();
}

void Report::left_out(const std::string& name, const std::string& reason) {
  left_out_.push_back({name, "", reason});
  std::printf("%-14s %s left out: %s\n", part_.c_str(), name.c_str(), reason.c_str());
  write();
}

void Report::finish() {
  finished_ = true;
  if (num_checks_ > 0) {
    std::printf("%-14s %d checks, %zu failed\n", part_.c_str(), num_checks_, failures_.size());
  }
  std::fflush(stdout);
  write();
}

std::string Report::json() const {
  const auto list = [](const std::vector<Line>& lines, const char* text_name) {
    std::string out = "[";
    for (const Line& line : lines) {
      if (out.size() > 1) out += ", ";
      out += "{\"name\": " + quoted(line.name);
      if (!line.value.empty()) out += ", \"value\": " + line.value;
      out += std::string(", \"") + text_name + "\": " + quoted(line.text) + "}";
    }
    return out + "]";
  };
  return "{\"part\": " + quoted(part_) + ", \"finished\": " + (finished_ ? "true" : "false") +
         ", \"checks\": " + std::to_string(num_checks_) + ", \"failures\": " + list(failures_, "seen") +
         ", \"left_out\": " + list(left_out_, "reason") + ", \"figures\": " + list(figures_, "unit") + "}";
}

// Through a name of its own: a reader never sees half a file.
void Report::write() const {
  if (path_.empty()) return;
  const std::string fresh = path_ + ".new";
  {
    std::ofstream out(fresh, std::ios::trunc);
    out << json() << '\n';
  }
  std::rename(fresh.c_str(), path_.c_str());
}

}  // namespace folio::gpu
