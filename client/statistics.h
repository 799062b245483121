// Figures of a load test: samples in, mean and percentiles out, always with their count.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace folio::client {

// All of them lie in [min, max].
struct Figures {
  std::size_t count = 0;  // 0: the others mean nothing
  double mean = 0, min = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};

class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  void add(const Samples& other) { values_.insert(values_.end(), other.values_.begin(), other.values_.end()); }
  std::size_t count() const { return values_.size(); }

  // REQUIRES count() > 0, of these three.
  double mean() const;
  // The smallest sample that at least `percent` of all samples do not exceed (nearest rank), percent in (0, 100].
  double percentile(double percent) const;
  double max() const { return percentile(100); }

  Figures figures() const;
  std::vector<double> sorted() const;

 private:
  std::vector<double> values_;
};

// "name  count  mean  p50  p90  p95  p99  max" aligned under statistics_header(); "no data" without samples.
std::string statistics_header();
std::string statistics_row(const std::string& name, const Samples& samples);
// {"count": n, "mean": ..., "min": ..., "p50": ...}; the figures are left out without samples: never NaN.
nlohmann::json to_json(const Samples& samples);

}  // namespace folio::client
