#include <algorithm>
#include <functional>
#include <utility>

#include "client/load_test/report.h"

namespace folio::client {
namespace {

using Points = std::vector<std::pair<double, double>>;

constexpr std::size_t kMostPoints = 1500;  // of a percentile curve

Points against_time(const std::vector<RequestRecord>& records,
                    const std::function<double(const RequestRecord&)>& figure) {
  Points points;
  for (const RequestRecord& record : records) {
    if (record.outcome == Outcome::kOk) points.emplace_back(record.due_s, figure(record));
  }
  std::sort(points.begin(), points.end());
  return points;
}

// (percent, the percentile): as many points as tell something, and the ends.
Points percentile_curve(const Samples& samples) {
  Points points;
  const std::vector<double> sorted = samples.sorted();
  const std::size_t step = sorted.size() / kMostPoints + 1;
  const auto percent = [&](std::size_t i) {
    return 100 * static_cast<double>(i + 1) / static_cast<double>(sorted.size());
  };
  for (std::size_t i = 0; i < sorted.size(); i += step) points.emplace_back(percent(i), sorted[i]);
  if (!sorted.empty() && points.back().first < 100) points.emplace_back(100, sorted.back());
  return points;
}

// Requests that were sent and have not ended: the number before and after each change, so that lines between the points
// are its steps.
Points under_way(const std::vector<RequestRecord>& records) {
  std::vector<std::pair<double, int>> changes;
  for (const RequestRecord& record : records) {
    changes.emplace_back(record.sent_s, 1);
    changes.emplace_back(record.end_s, -1);
  }
  std::sort(changes.begin(), changes.end());
  Points points;
  double count = 0;
  for (const auto& [at_s, change] : changes) {
    points.emplace_back(at_s, count);
    points.emplace_back(at_s, count += change);
  }
  return points;
}

}  // namespace

std::vector<Plot> make_plots(const Summary& summary, const std::vector<RequestRecord>& records) {
  const auto dots = PlotSeries::Style::kPoints;
  Plot latency{"latency", {"due, seconds from the start", false}, {"milliseconds", true}, {}, {}};
  latency.series.push_back({"time to first token", against_time(records, &RequestRecord::ttft_ms), dots});
  latency.series.push_back({"end to end", against_time(records, &RequestRecord::e2e_ms), dots});

  Plot curves{"percentiles", {"percent of the samples, at most", false}, {"milliseconds", true}, {}, {}};
  curves.series.push_back({"time to first token", percentile_curve(summary.ttft_ms)});
  curves.series.push_back({"inter-token latency", percentile_curve(summary.itl_ms)});
  curves.series.push_back({"time per output token", percentile_curve(summary.tpot_ms)});
  curves.series.push_back({"end to end", percentile_curve(summary.e2e_ms)});

  Plot tokens{"throughput", {"seconds from the start", false}, {"output tokens a second", false}, {}, {}};
  tokens.series.push_back({"output tokens of ok requests", token_rates(records, 0, summary.duration_s)});
  Plot requests{"requests under way", {"seconds from the start", false}, {"requests", false}, {}, {}};
  requests.series.push_back({"sent and not ended", under_way(records)});
  return {latency, curves, tokens, requests};
}

}  // namespace folio::client
