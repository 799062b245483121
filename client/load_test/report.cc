#include "client/load_test/report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace folio::client {
namespace {

using Json = nlohmann::json;

// printf into a string that grows by it.
template <class... Args>
void print(std::string& out, const char* format, Args... args) {
  char line[512];
  std::snprintf(line, sizeof line, format, args...);
  out += line;
}

long long ll(std::int64_t value) {
  return value;
}

// A line for each kind of failure, with the first one's words.
std::string errors_text(const Summary& s) {
  std::string out;
  for (const auto& [kind, count] : s.errors) {
    const std::string& words = s.first_messages.at(kind);
    out += "  " + kind + ": " + std::to_string(count) + ", first: " + (words.empty() ? "(no message)" : words) + "\n";
  }
  return out;
}

std::string rate(const char* format, const std::optional<double>& value) {
  std::string out;
  if (value) print(out, format, *value);
  return out;
}

void print_counts(const Summary& s, std::string& out) {
  if (s.partial) out += "PARTIAL: interrupted\n";
  print(out, "requests: %lld ok, %lld empty, %lld failed, %lld aborted in %.2f s\n", ll(s.num_ok), ll(s.num_empty),
        ll(s.num_failed), ll(s.num_aborted), s.duration_s);
  out += errors_text(s);
  if (s.num_cancelled > 0) print(out, "cancelled by us as asked: %lld\n", ll(s.num_cancelled));
  if (s.num_left_out > 0) {
    print(out, "left out, due in warm-up or cool-down: %lld (%lld of them empty or failed)\n", ll(s.num_left_out),
          ll(s.num_left_out_failed));
  }
}

void print_rates(const Summary& s, std::string& out) {
  char over[48] = "";
  if (s.window_s != s.duration_s) std::snprintf(over, sizeof over, " over %.2f s", s.window_s);
  char cached[48] = "";
  if (s.cached_tokens > 0) std::snprintf(cached, sizeof cached, ", %lld of them cached", ll(s.cached_tokens));
  print(out,
        "rates of %lld ok requests%s: %.2f requests/s, %.1f prompt tokens/s (%lld%s), %.1f output tokens/s (%lld)\n",
        ll(s.num_ok), over, s.requests_per_second, s.prompt_tokens_per_second, ll(s.prompt_tokens), cached,
        s.output_tokens_per_second, ll(s.output_tokens));
  if (s.open_loop) {
    print(out, "open loop: %s%s%lld later than %.0f ms, %lld never\n",
          rate("%.2f requests/s were due, ", s.due_per_second).c_str(),
          rate("%.2f were sent, ", s.sent_per_second).c_str(), ll(s.num_late), kLateMs, ll(s.num_missed));
  }
  if (!s.goals.empty()) {
    print(out, "goodput %s: %lld requests (%.1f %%), %.2f requests/s, %.1f output tokens/s\n", to_text(s.goals).c_str(),
          ll(s.num_good), 100 * s.good_share(), s.good_requests_per_second, s.good_tokens_per_second);
  }
}

void print_latencies(const Summary& s, std::string& out) {
  out += statistics_header() + "\n";
  out += statistics_row("time to first token ms", s.ttft_ms) + "\n";
  out += statistics_row("inter-token latency ms", s.itl_ms) + "\n";
  out += statistics_row("time per output token ms", s.tpot_ms) + "\n";
  out += statistics_row("end to end ms", s.e2e_ms) + "\n";
  if (!s.open_loop) return;
  out += statistics_row("first token, from sent", s.ttft_from_sent_ms) + "\n";
  out += statistics_row("end to end, from sent", s.e2e_from_sent_ms) + "\n";
  out += statistics_row("sent after due ms", s.send_delay_ms) + "\n";
}

void print_warnings(const Summary& s, std::string& out) {
  if (s.num_estimated > 0) {
    print(out, "estimate: of %lld requests neither ids nor usage came; their text was tokenised as a whole\n",
          ll(s.num_estimated));
  }
  if (s.num_uncounted > 0) {
    print(out, "warning: of %lld requests neither ids nor usage came: their tokens are not in the figures\n",
          ll(s.num_uncounted));
  }
  if (s.num_counts_differ > 0) {
    print(out, "warning: of %lld requests the server's usage is not the number of ids that came\n",
          ll(s.num_counts_differ));
  }
  if (s.num_missed > 0) {
    print(out, "warning: %lld requests were due and never sent: with them latencies would be higher\n",
          ll(s.num_missed));
  }
  if (s.num_late > 0) {
    print(out, "warning: %lld requests were sent more than %.0f ms after they were due, p99 of all %.1f ms\n",
          ll(s.num_late), kLateMs, s.send_delay_ms.percentile(99));
  }
  for (const std::string& warning : s.warnings()) out += "warning: " + warning + "\n";
}

Json client_json(const Summary& s) {
  return {{"cpu_s", s.client.cpu_s},
          {"cores", s.client.cores},
          {"own_delay_ms", to_json(s.own_delay_ms)},
          {"read_lag_ms", to_json(s.client.read_lag_ms)},
          {"saturated", !s.saturation().empty()},
          {"reasons", s.saturation()}};
}

// Figures of a CSV row: where in the JSON they are.
constexpr const char* kScalars[] = {"partial",
                                    "duration_s",
                                    "window_s",
                                    "num_ok",
                                    "num_empty",
                                    "num_failed",
                                    "num_refused",
                                    "num_cancelled",
                                    "num_aborted",
                                    "num_missed",
                                    "num_late",
                                    "num_left_out",
                                    "prompt_tokens",
                                    "cached_tokens",
                                    "output_tokens",
                                    "requests_per_second",
                                    "prompt_tokens_per_second",
                                    "output_tokens_per_second",
                                    "peak_output_tokens_per_second"};
constexpr const char* kDistributions[] = {"ttft_ms",           "itl_ms",           "tpot_ms",      "e2e_ms",
                                          "ttft_from_sent_ms", "e2e_from_sent_ms", "send_delay_ms"};
constexpr const char* kStatistics[] = {"count", "mean", "min", "p50", "p90", "p95", "p99", "max"};

std::string quoted(const std::string& cell) {
  if (cell.find_first_of(",\"\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string failures_text(const Summary& s) {
  std::string out = errors_text(s);
  if (s.num_empty > 0) print(out, "  empty: %lld\n", ll(s.num_empty));
  if (s.num_missed > 0) print(out, "  never sent: %lld\n", ll(s.num_missed));
  return out;
}

std::string to_text(const Summary& summary) {
  std::string out;
  print_counts(summary, out);
  print_rates(summary, out);
  print_latencies(summary, out);
  const Samples& lag = summary.client.read_lag_ms;
  print(out, "client: %.2f s of CPU time, %.0f %% of a core", summary.client.cpu_s,
        summary.duration_s > 0 ? 100 * summary.client.cpu_s / summary.duration_s : 0.0);
  if (summary.own_delay_ms.count() > 0) print(out, "; late by itself p99 %.2f ms", summary.own_delay_ms.percentile(99));
  if (lag.count() > 0) print(out, "; read late p99 %.2f ms", lag.percentile(99));
  out += "\n";
  print_warnings(summary, out);
  return out;
}

nlohmann::json to_json(const Summary& s) {
  Json failures = Json::object();
  for (const auto& [kind, count] : s.errors) {
    failures[kind] = {{"count", count}, {"first_message", s.first_messages.at(kind)}};
  }
  Json out{{"partial", s.partial},
           {"duration_s", s.duration_s},
           {"window_s", s.window_s},
           {"num_ok", s.num_ok},
           {"num_empty", s.num_empty},
           {"num_failed", s.num_failed},
           {"num_refused", s.num_refused},
           {"num_cancelled", s.num_cancelled},
           {"num_aborted", s.num_aborted},
           {"num_missed", s.num_missed},
           {"num_late", s.num_late},
           {"num_left_out", s.num_left_out},
           {"num_left_out_failed", s.num_left_out_failed},
           {"num_estimated", s.num_estimated},
           {"num_uncounted", s.num_uncounted},
           {"num_counts_differ", s.num_counts_differ},
           {"num_short", s.num_short},
           {"num_missing_tokens", s.num_missing_tokens},
           {"errors", failures},
           {"prompt_tokens", s.prompt_tokens},
           {"cached_tokens", s.cached_tokens},
           {"output_tokens", s.output_tokens},
           {"requests_per_second", s.requests_per_second},
           {"prompt_tokens_per_second", s.prompt_tokens_per_second},
           {"output_tokens_per_second", s.output_tokens_per_second},
           {"peak_output_tokens_per_second", s.peak_output_tokens_per_second},
           {"ttft_ms", to_json(s.ttft_ms)},
           {"itl_ms", to_json(s.itl_ms)},
           {"tpot_ms", to_json(s.tpot_ms)},
           {"e2e_ms", to_json(s.e2e_ms)},
           {"ttft_from_sent_ms", to_json(s.ttft_from_sent_ms)},
           {"e2e_from_sent_ms", to_json(s.e2e_from_sent_ms)},
           {"send_delay_ms", to_json(s.send_delay_ms)},
           {"client", client_json(s)}};
  if (s.open_loop) {
    out["open_loop"] = {{"num_due_in_second_half", s.num_due_in_second_half}, {"backlog_growth", s.backlog_growth}};
    if (s.due_per_second) out["open_loop"]["due_per_second"] = *s.due_per_second;
    if (s.sent_per_second) out["open_loop"]["sent_per_second"] = *s.sent_per_second;
  }
  if (!s.goals.empty()) {
    out["goodput"] = {{"limits", to_text(s.goals)},
                      {"num_good", s.num_good},
                      {"share", s.good_share()},
                      {"requests_per_second", s.good_requests_per_second},
                      {"output_tokens_per_second", s.good_tokens_per_second}};
  }
  return out;
}

std::string to_csv(const Labels& labels, const std::vector<Summary>& summaries) {
  std::string out;
  for (const auto& [name, values] : labels) out += quoted(name) + ",";
  for (const char* name : kScalars) out += std::string(name) + ",";
  for (const char* name : {"due_per_second", "sent_per_second", "good_share", "good_requests_per_second"}) {
    out += std::string(name) + ",";
  }
  for (const char* name : kDistributions) {
    for (const char* statistic : kStatistics) out += std::string(name) + "_" + statistic + ",";
  }
  out.back() = '\n';
  for (std::size_t row = 0; row < summaries.size(); ++row) {
    const Json json = to_json(summaries[row]);
    for (const auto& [name, values] : labels) out += quoted(values[row]) + ",";
    for (const char* name : kScalars) out += json.at(name).dump() + ",";
    const auto optional = [&](const char* group, const char* name) {
      out += (json.contains(group) && json.at(group).contains(name) ? json.at(group).at(name).dump() : "") + ",";
    };
    optional("open_loop", "due_per_second");
    optional("open_loop", "sent_per_second");
    optional("goodput", "share");
    optional("goodput", "requests_per_second");
    for (const char* name : kDistributions) {
      for (const char* statistic : kStatistics) {
        const Json& figures = json.at(name);
        out += (figures.contains(statistic) ? figures.at(statistic).dump() : "") + ",";
      }
    }
    out.back() = '\n';
  }
  return out;
}

}  // namespace folio::client
