#include "client/load_test/token_times.h"

#include <map>
#include <numeric>

namespace folio::client {
namespace {

double ms_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// [i]: tokens of arrivals[i].
std::vector<std::int64_t> tokens_by_bytes(const std::vector<Arrival>& arrivals, std::int64_t total) {
  const std::int64_t all = std::accumulate(arrivals.begin(), arrivals.end(), std::int64_t{0},
                                           [](std::int64_t sum, const Arrival& a) { return sum + a.text_bytes; });
  std::vector<std::int64_t> tokens;
  std::int64_t bytes = 0;
  std::int64_t given = 0;
  for (const Arrival& arrival : arrivals) {
    bytes += arrival.text_bytes;
    const std::int64_t until_here = all > 0 ? (total * bytes + all - 1) / all : 0;
    tokens.push_back(until_here - given);
    given = until_here;
  }
  return tokens;
}

}  // namespace

TokenTimes measure(const std::vector<Arrival>& arrivals, std::optional<std::int64_t> total, SteadyTime start) {
  std::vector<std::int64_t> tokens;
  std::int64_t num_ids = 0;
  for (const Arrival& arrival : arrivals) {
    tokens.push_back(arrival.tokens);
    num_ids += arrival.tokens;
  }
  if (num_ids == 0) tokens = tokens_by_bytes(arrivals, total.value_or(0));

  TokenTimes out;
  std::map<std::int32_t, SteadyTime> last_of;  // answer -> its last token's time
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    if (tokens[i] <= 0) continue;
    const Arrival& arrival = arrivals[i];
    const auto [last, is_first] = last_of.try_emplace(arrival.index, arrival.at);
    const double share = ms_between(last->second, arrival.at) / static_cast<double>(tokens[i]);
    out.gaps_ms.insert(out.gaps_ms.end(), static_cast<std::size_t>(tokens[i] - (is_first ? 1 : 0)),
                       static_cast<float>(share));
    last->second = arrival.at;
    out.moments.push_back({ms_between(start, arrival.at) / 1000, tokens[i]});
  }
  return out;
}

}  // namespace folio::client
