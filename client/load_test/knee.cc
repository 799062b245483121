#include "client/load_test/knee.h"

#include <algorithm>

namespace folio::client {
namespace {

constexpr double kKneeShare = 0.9;    // of the best throughput
constexpr double kGrowth = 0.1;       // of the backlog, in requests that were due meanwhile
constexpr double kSmallGrowth = 2;    // which is chance
constexpr double kWorthwhile = 1.05;  // times the best before

double throughput(const Summary& summary) {
  return summary.num_uncounted > 0 ? summary.requests_per_second : summary.output_tokens_per_second;
}

double best(const std::vector<SweepPoint>& points, std::size_t count) {
  double most = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!points[i].summary.partial) most = std::max(most, throughput(points[i].summary));
  }
  return most;
}

bool keeps_up(const Summary& summary) {
  const double allowed = std::max(kSmallGrowth, kGrowth * static_cast<double>(summary.num_due_in_second_half));
  return static_cast<double>(summary.backlog_growth) <= allowed;
}

}  // namespace

std::optional<Knee> find_knee(const std::vector<SweepPoint>& points, bool over_rate) {
  std::optional<Knee> knee;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Summary& summary = points[i].summary;
    if (summary.partial) continue;
    const bool is_good =
        over_rate ? keeps_up(summary) : throughput(summary) >= kKneeShare * best(points, points.size());
    if (summary.num_ok > 0 && is_good && (over_rate || !knee)) {
      knee = Knee{i, false};
    } else if (knee) {
      knee->is_reached = true;
    }
  }
  return knee;
}

bool is_past_knee(const std::vector<SweepPoint>& points, bool over_rate, double max_failed_percent) {
  if (points.empty()) return false;
  const Summary& last = points.back().summary;
  if (100 * last.failed_share() > max_failed_percent) return true;
  if (over_rate) return !keeps_up(last);
  if (points.size() < 3) return false;
  const auto gains = [&](std::size_t i) { return throughput(points[i].summary) > kWorthwhile * best(points, i); };
  return !gains(points.size() - 1) && !gains(points.size() - 2);
}

}  // namespace folio::client
