// How far two rows of numbers are from each other.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "tests/gpu/report.h"

namespace folio::gpu {

struct Difference {
  double worst = 0;  // NaN if there is one, or if the sizes differ
  double mean = 0;
};

inline Difference difference(std::span<const float> a, std::span<const float> b) {
  Difference found;
  if (a.size() != b.size() || a.empty()) return {NAN, NAN};
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double error = std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(error <= found.worst)) found.worst = error;
    if (std::isnan(error)) return {NAN, NAN};
    found.mean += error;
  }
  found.mean /= static_cast<double>(a.size());
  return found;
}

inline void check_near(Report& report, const std::string& name, std::span<const float> got,
                       std::span<const float> expected, double tolerance) {
  const Difference found = difference(got, expected);
  report.check(name, found.worst <= tolerance,
               "largest difference " + number(found.worst) + ", allowed " + number(tolerance));
}

// To the bit; what is no number equals nothing.
inline void check_equal(Report& report, const std::string& name, std::span<const float> got,
                        std::span<const float> expected) {
  const double worst = difference(got, expected).worst;
  const bool equal = worst == 0 && std::memcmp(got.data(), expected.data(), got.size_bytes()) == 0;
  report.check(name, equal, "largest difference " + number(worst) + ", none is allowed");
}

}  // namespace folio::gpu
