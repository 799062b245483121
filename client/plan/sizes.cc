#include "client/plan/sizes.h"

#include <charconv>
#include <cmath>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace folio::client {
namespace {

constexpr std::string_view kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
constexpr const char* kTooMuch = "the plan is beyond 16 EiB of memory";

}  // namespace

std::string size_text(std::uint64_t bytes) {
  std::size_t unit = 0;
  auto value = static_cast<double>(bytes);
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (std::round(value * 100) / 100 >= 1024 && unit + 1 < std::size(kUnits)) {  // 1023.999: 1 of the next
    value = 1;
    ++unit;
  }
  char text[32];
  const auto end =
      std::to_chars(std::begin(text), std::end(text), std::round(value * 100) / 100, std::chars_format::fixed);
  return std::string(text, end.ptr) + " " + std::string(kUnits[unit]);
}

std::uint64_t parse_size(const std::string& text, const std::string& flag) {
  const auto refuse = [&] {
    return UsageError(flag + ": '" + text +
                      "' is not a size: a number above 0 and B (or nothing), KiB, MiB, GiB or TiB");
  };
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto number = std::from_chars(text.data(), last, value, std::chars_format::fixed);
  if (number.ec != std::errc()) throw refuse();
  std::string_view unit(number.ptr, static_cast<std::size_t>(last - number.ptr));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (int i = 0; i < 5; ++i) {
    if (unit != kUnits[i] && !(unit.empty() && i == 0)) continue;
    const double bytes = std::ldexp(value, 10 * i);
    if (!(bytes >= 1 && bytes < 0x1p63)) throw refuse();
    return static_cast<std::uint64_t>(bytes);
  }
  throw refuse();
}

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) throw std::overflow_error(kTooMuch);
  return result;
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  std::uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) throw std::overflow_error(kTooMuch);
  return result;
}

}  // namespace folio::client
