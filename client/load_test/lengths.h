// How long prompts and answers are, in tokens.
#pragma once
#include <cstdint>
#include <random>
#include <string>

namespace folio::client {

class Lengths {
 public:
  explicit Lengths(std::int64_t fixed);
  // "128" (all alike), "uniform:64,256" (both ends included), "lognormal:200,0.6" or "lognormal:200,0.6,MIN,MAX": the
  // median, the standard deviation of the logarithm, and limits that what is drawn is clamped to (default: 1 and none).
  // Throws std::invalid_argument saying what is wrong.
  static Lengths parse(const std::string& text);

  // At least 1. Consumes a number of `random` for every kind but the fixed one.
  std::int64_t draw(std::mt19937_64& random) const;
  const std::string& text() const { return text_; }

 private:
  enum class Kind { kFixed, kUniform, kLogNormal };
  Kind kind_ = Kind::kFixed;
  std::int64_t min_ = 1;  // kFixed: the length
  std::int64_t max_ = 1;
  double median_ = 1;
  double sigma_ = 0;
  std::string text_;
};

}  // namespace folio::client
