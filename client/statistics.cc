#include "client/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace folio::client {
namespace {

constexpr std::pair<const char*, double> kPercentiles[] = {{"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}};

}  // namespace

double Samples::mean() const {
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(values_.size());
}

double Samples::percentile(double percent) const {
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[static_cast<std::size_t>(std::max(rank, 1.0)) - 1];
}

std::string statistics_header() {
  char line[160];
  std::snprintf(line, sizeof line, "%-24s %8s %9s %9s %9s %9s %9s %9s", "", "count", "mean", "p50", "p90", "p95", "p99",
                "max");
  return line;
}

std::string statistics_row(const std::string& name, const Samples& samples) {
  char line[160];
  if (samples.count() == 0) {
    std::snprintf(line, sizeof line, "%-24s %8d   no data", name.c_str(), 0);
    return line;
  }
  std::snprintf(line, sizeof line, "%-24s %8zu %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f", name.c_str(), samples.count(),
                samples.mean(), samples.percentile(50), samples.percentile(90), samples.percentile(95),
                samples.percentile(99), samples.max());
  return line;
}

nlohmann::json to_json(const Samples& samples) {
  nlohmann::json out{{"count", samples.count()}};
  if (samples.count() == 0) return out;
  out["mean"] = samples.mean();
  for (const auto& [name, percent] : kPercentiles) out[name] = samples.percentile(percent);
  out["max"] = samples.max();
  return out;
}

}  // namespace folio::client
