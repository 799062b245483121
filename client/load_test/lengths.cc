#include "client/load_test/lengths.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace folio::client {
namespace {

constexpr std::int64_t kMostTokens = 10'000'000;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

// `name`: of this part of the form, and a space; or "".
template <class Number>
Number number(const char* name, const std::string& text, Number min, Number max) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // Written so that NaN is outside.
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= min && value <= max)) {
    char limits[64];
    std::snprintf(limits, sizeof limits, "[%.15g, %.15g]", static_cast<double>(min), static_cast<double>(max));
    throw std::invalid_argument(name + ("'" + text) + "' is not a number in " + limits);
  }
  return value;
}

std::int64_t tokens(const char* name, const std::string& text) {
  return number<std::int64_t>(name, text, 1, kMostTokens);
}

}  // namespace

Lengths::Lengths(std::int64_t fixed) : min_(fixed), max_(fixed), text_(std::to_string(fixed)) {}

Lengths Lengths::parse(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return Lengths(tokens("", text));
  const std::string kind = text.substr(0, colon);
  const std::vector<std::string> parts = split(std::string_view(text).substr(colon + 1));
  Lengths out(1);
  out.text_ = text;
  if (kind == "uniform") {
    if (parts.size() != 2) throw std::invalid_argument("uniform wants uniform:MIN,MAX");
    out.kind_ = Kind::kUniform;
    out.min_ = tokens("MIN ", parts[0]);
    out.max_ = tokens("MAX ", parts[1]);
  } else if (kind == "lognormal") {
    if (parts.size() != 2 && parts.size() != 4) {
      throw std::invalid_argument("lognormal wants lognormal:MEDIAN,SIGMA or lognormal:MEDIAN,SIGMA,MIN,MAX");
    }
    out.kind_ = Kind::kLogNormal;
    out.median_ = number<double>("MEDIAN ", parts[0], 1, static_cast<double>(kMostTokens));
    out.sigma_ = number<double>("SIGMA ", parts[1], 0, 10);
    out.min_ = parts.size() == 4 ? tokens("MIN ", parts[2]) : 1;
    out.max_ = parts.size() == 4 ? tokens("MAX ", parts[3]) : kMostTokens;
  } else {
    throw std::invalid_argument("'" + kind + "' is not one of N, uniform:MIN,MAX and lognormal:MEDIAN,SIGMA[,MIN,MAX]");
  }
  if (out.min_ > out.max_) {
    throw std::invalid_argument("the least, " + std::to_string(out.min_) + ", is above the most, " +
                                std::to_string(out.max_));
  }
  return out;
}

std::int64_t Lengths::draw(std::mt19937_64& random) const {
  switch (kind_) {
    case Kind::kUniform:
      return std::uniform_int_distribution<std::int64_t>(min_, max_)(random);
    case Kind::kLogNormal: {
      const double drawn = std::lognormal_distribution<double>(std::log(median_), sigma_)(random);
      return std::llround(std::clamp(drawn, static_cast<double>(min_), static_cast<double>(max_)));
    }
    case Kind::kFixed:
      break;
  }
  return min_;
}

}  // namespace folio::client
