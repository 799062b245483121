// Where more load stops giving more throughput.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "client/load_test/summary.h"

namespace folio::client {

// One point of a sweep: closed loops of `load` callers, or an open loop of `load` requests a second.
struct SweepPoint {
  double load = 0;
  Summary summary;
};

struct Knee {
  std::size_t point = 0;
  // There is a complete point beyond it. Else it is the best that is known, and more load may give more.
  bool is_reached = false;
};

// Over concurrency: the first point that has 90 % of the best output token rate of all points (request rate, if tokens
// are not known). Over rate: the last point that the server kept up with: in the second half of the sending the number
// of requests that were due and had not ended rose by at most a tenth of those that were due in it, or by two. None: a
// sweep of rates began beyond it, or there is no point. Partial points do not count.
std::optional<Knee> find_knee(const std::vector<SweepPoint>& points, bool over_rate);

// Whether the points go beyond the knee, so that more load would tell nothing new: over concurrency neither of the last
// two had 5 % more throughput than the best before it; over rate the server did not keep up with the last one. Also
// when more than `max_failed_percent` of the last one's requests failed.
bool is_past_knee(const std::vector<SweepPoint>& points, bool over_rate, double max_failed_percent);

}  // namespace folio::client
