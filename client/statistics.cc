#include "client/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>

namespace folio::client {
namespace {

double nearest_rank(const std::vector<double>& sorted, double percent) {
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double Samples::mean() const {
  return mean_of(values_);
}

double Samples::percentile(double percent) const {
  return nearest_rank(sorted(), percent);
}

std::vector<double> Samples::sorted() const {
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  return sorted;
}

Figures Samples::figures() const {
  Figures out;
  out.count = count();
  if (out.count == 0) return out;
  const std::vector<double> values = sorted();
  out.min = values.front();
  out.max = values.back();
  out.mean = std::clamp(mean_of(values), out.min, out.max);  // the sum is rounded
  out.p50 = nearest_rank(values, 50);
  out.p90 = nearest_rank(values, 90);
  out.p95 = nearest_rank(values, 95);
  out.p99 = nearest_rank(values, 99);
  return out;
}

std::string statistics_header() {
  char line[160];
  std::snprintf(line, sizeof line, "%-24s %8s %9s %9s %9s %9s %9s %9s", "", "count", "mean", "p50", "p90", "p95", "p99",
                "max");
  return line;
}

std::string statistics_row(const std::string& name, const Samples& samples) {
  char line[160];
  const Figures f = samples.figures();
  if (f.count == 0) {
    std::snprintf(line, sizeof line, "%-24s %8d   no data", name.c_str(), 0);
    return line;
  }
  std::snprintf(line, sizeof line, "%-24s %8zu %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f", name.c_str(), f.count, f.mean,
                f.p50, f.p90, f.p95, f.p99, f.max);
  return line;
}

nlohmann::json to_json(const Samples& samples) {
  const Figures f = samples.figures();
  nlohmann::json out{{"count", f.count}};
  if (f.count == 0) return out;
  out.update({{"mean", f.mean},
              {"min", f.min},
              {"p50", f.p50},
              {"p90", f.p90},
              {"p95", f.p95},
              {"p99", f.p99},
              {"max", f.max}});
  return out;
}

}  // namespace folio::client
