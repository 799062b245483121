#include "client/plot_axis.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <utility>

namespace folio::client {
namespace {

constexpr double kLargest = 1e200;
// An axis shorter than this part of its values is made longer: what differs by less looks the same, and the labels that
// tell it apart would be long.
constexpr double kShortest = 1e-4;

// The least of 1, 2, 5, 10, ... times any power of ten that is not below `value`, but for rounding.
double round_up_step(double value) {
  const double power = std::pow(10.0, std::floor(std::log10(value)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= value * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Without the locale, which could bring commas.
std::string number(double value, std::chars_format format, int digits) {
  char text[64];
  const auto end = std::to_chars(std::begin(text), std::end(text), value, format, digits);
  return std::string(text, end.ptr);
}

struct Unit {
  double from;  // suits axes whose largest value is at least this
  double size;
  const char* suffix;
};
constexpr Unit kUnits[] = {{1e13, 1e12, "T"}, {1e10, 1e9, "G"}, {1e7, 1e6, "M"}, {1e4, 1e3, "k"}, {0, 1, ""}};

}  // namespace

bool can_place(double value, bool logarithmic) {
  if (!std::isfinite(value) || std::abs(value) > kLargest) return false;
  return logarithmic ? value >= 1 / kLargest : true;
}

std::string tick_label(double value, double step, double largest) {
  if (std::abs(value) < step / 2) return "0";
  if (largest >= 1e16 || largest < 1e-3) {
    const double digits = std::floor(std::log10(std::abs(value))) - std::floor(std::log10(step));
    return number(value, std::chars_format::scientific, static_cast<int>(std::clamp(digits, 0.0, 9.0)));
  }
  for (const Unit& unit : kUnits) {
    if (largest < unit.from) continue;
    const double digits = -std::floor(std::log10(step / unit.size) + 1e-9);
    return number(value / unit.size, std::chars_format::fixed, static_cast<int>(std::clamp(digits, 0.0, 12.0))) +
           unit.suffix;
  }
  return "";
}

AxisScale::AxisScale(double low, double high, bool logarithmic, int wanted)
    : low_(std::min(low, high)), high_(std::max(low, high)), logarithmic_(logarithmic) {
  if (logarithmic_) {
    make_logarithmic(wanted);
  } else {
    make_linear(wanted);
  }
}

double AxisScale::place(double value) const {
  const double part = logarithmic_ ? (std::log(value) - std::log(low_)) / (std::log(high_) - std::log(low_))
                                   : (value - low_) / (high_ - low_);
  return std::clamp(part, 0.0, 1.0);
}

void AxisScale::make_linear(int wanted) {
  if (low_ > 0 && low_ <= high_ / 2) low_ = 0;
  if (high_ < 0 && high_ >= low_ / 2) high_ = 0;
  if (low_ == 0 && high_ == 0) high_ = 1;
  const double largest = std::max(std::abs(low_), std::abs(high_));
  const double least = high_ > low_ ? kShortest * largest : 0.2 * largest;
  if (high_ - low_ < least) {
    const double middle = low_ / 2 + high_ / 2;
    low_ = middle - least / 2;
    high_ = middle + least / 2;
  }
  const double step = round_up_step((high_ - low_) / wanted);
  low_ = std::min(low_, step * std::floor(low_ / step + 1e-6));
  high_ = std::max(high_, step * std::ceil(high_ / step - 1e-6));
  add_ticks(step);
}

void AxisScale::add_ticks(double step) {
  const double largest = std::max(std::abs(low_), std::abs(high_));
  const double first = std::ceil(low_ / step - 1e-6), last = std::floor(high_ / step + 1e-6);
  for (double i = first; i <= last; ++i) {
    const double value = i * step;
    ticks_.push_back({std::clamp(value, low_, high_), tick_label(value, step, largest)});
  }
}

void AxisScale::make_logarithmic(int wanted) {
  const double least = high_ > low_ ? 1 + kShortest : 1.5;
  if (high_ / low_ < least) {
    low_ /= std::sqrt(least);
    high_ *= std::sqrt(least);
  }
  const double decades = std::log10(high_) - std::log10(low_);
  if (decades < 0.7) {  // few or none of 1, 2, 5: equal steps, though they are not equally far apart here
    const double step = round_up_step((high_ - low_) / wanted);
    const double below = step * std::floor(low_ / step + 1e-6);
    low_ = std::min(low_, below > 0 ? below : low_ / 1.02);
    high_ = std::max(high_, step * std::ceil(high_ / step - 1e-6));
    add_ticks(step);
    return;
  }
  const double every = std::max(1.0, std::ceil(decades / wanted));
  const bool has_between = decades * 3 <= wanted;
  const auto first = static_cast<int>(std::floor(std::log10(low_) + 1e-9));
  const auto last = static_cast<int>(std::ceil(std::log10(high_) - 1e-9));
  std::vector<double> values;
  for (int exponent = first; exponent <= last; ++exponent) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      if (factor > 1 && (!has_between || exponent == last)) break;
      values.push_back(factor * std::pow(10.0, exponent));
    }
  }
  // From the last of them that is not above the values to the first that is not below.
  auto begin = values.begin();
  auto end = values.end();
  while (std::next(begin) != end && *std::next(begin) <= low_ * (1 + 1e-9)) ++begin;
  while (*std::prev(end, 2) >= high_ * (1 - 1e-9)) --end;
  low_ = std::min(low_, *begin);
  high_ = std::max(high_, *std::prev(end));
  for (std::ptrdiff_t i = 0; i < end - begin; i += has_between ? 1 : static_cast<std::ptrdiff_t>(every)) {
    const double value = begin[i];
    ticks_.push_back({value, tick_label(value, std::pow(10.0, std::floor(std::log10(value) + 1e-9)), 10 * value)});
  }
}

}  // namespace folio::client
