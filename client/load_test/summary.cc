#include "client/load_test/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "client/text.h"

namespace folio::client {
namespace {

constexpr double kSlowMs = 10;      // p99 of the client's own delays: more of it shows in the figures
constexpr double kBusyShare = 0.9;  // of the cores that it can use
constexpr double kMostParts = 600;  // of a curve over time

double per_second(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

struct Window {
  double from_s = 0, to_s = 0;
  bool holds(double at_s) const { return at_s >= from_s && at_s <= to_s; }
  double length() const { return std::max(0.0, to_s - from_s); }
};

void count(const RequestRecord& record, Summary& out) {
  switch (record.outcome) {
    case Outcome::kOk:
      ++out.num_ok;
      break;
    case Outcome::kEmpty:
      ++out.num_empty;
      break;
    case Outcome::kCancelled:
      ++out.num_cancelled;
      break;
    case Outcome::kAborted:
      ++out.num_aborted;
      break;
    case Outcome::kFailed:
      ++out.num_failed;
      if (is_refusal(record)) ++out.num_refused;
      ++out.errors[record.error];
      out.first_messages.try_emplace(record.error, record.message);
      break;
  }
  out.send_delay_ms.add(record.send_delay_ms());
  out.own_delay_ms.add(record.own_delay_ms());
  if (record.send_delay_ms() > kLateMs) ++out.num_late;
}

void add_figures(const RequestRecord& record, Summary& out) {
  out.prompt_tokens += record.prompt_tokens;
  out.cached_tokens += record.cached_tokens;
  out.output_tokens += record.output_tokens.value_or(0);
  if (record.estimated) ++out.num_estimated;
  if (!record.output_tokens) ++out.num_uncounted;
  if (record.counts_differ) ++out.num_counts_differ;
  if (record.is_short()) {
    ++out.num_short;
    out.num_missing_tokens += record.num_asked - *record.output_tokens;
  }
  out.ttft_ms.add(record.ttft_ms());
  out.e2e_ms.add(record.e2e_ms());
  out.ttft_from_sent_ms.add(record.ttft_ms() - record.send_delay_ms());
  out.e2e_from_sent_ms.add(record.e2e_ms() - record.send_delay_ms());
  for (const float gap : record.times.gaps_ms) out.itl_ms.add(gap);
  if (const auto tpot = record.tpot_ms()) out.tpot_ms.add(*tpot);
  if (is_good(record, out.goals)) ++out.num_good;
}

// Rates count what happened in the window, whichever request it belongs to: those that were under way at its edges have
// a part on each side.
void add_rates(const std::vector<RequestRecord>& records, const Window& window, Summary& out) {
  double requests = 0, prompt_tokens = 0, output_tokens = 0, good = 0, good_tokens = 0;
  for (const RequestRecord& record : records) {
    if (record.outcome != Outcome::kOk) continue;
    const bool is_counted_good = is_good(record, out.goals);
    if (window.holds(record.end_s)) {
      ++requests;
      if (is_counted_good) ++good;
    }
    if (window.holds(*record.first_s)) prompt_tokens += static_cast<double>(record.prompt_tokens);
    for (const TokenMoment& moment : record.times.moments) {
      if (!window.holds(moment.at_s)) continue;
      output_tokens += static_cast<double>(moment.tokens);
      if (is_counted_good) good_tokens += static_cast<double>(moment.tokens);
    }
  }
  out.requests_per_second = per_second(requests, window.length());
  out.prompt_tokens_per_second = per_second(prompt_tokens, window.length());
  out.output_tokens_per_second = per_second(output_tokens, window.length());
  out.good_requests_per_second = per_second(good, window.length());
  out.good_tokens_per_second = per_second(good_tokens, window.length());
  out.peak_output_tokens_per_second = out.output_tokens_per_second;  // which rounding must not put above the parts
  for (const auto& [at_s, rate] : token_rates(records, window.from_s, window.to_s)) {
    out.peak_output_tokens_per_second = std::max(out.peak_output_tokens_per_second, rate);
  }
}

// Requests a second by one of their times. Where the sending ended with the last request, its gap to the next is not
// known: n of them have n - 1 gaps. Else the sending's time is over all.
std::optional<double> rate_of(const std::vector<RequestRecord>& records, double RequestRecord::*time,
                              std::int64_t num_more, const RunResult& run) {
  double count = static_cast<double>(records.size()) + static_cast<double>(num_more);
  double span_s = run.sending_s;
  if (run.all_sent && !records.empty()) {
    const auto [first, last] = std::minmax_element(records.begin(), records.end(),
                                                   [time](const auto& a, const auto& b) { return a.*time < b.*time; });
    span_s = *last.*time - *first.*time;
    --count;
  }
  return count > 0 && span_s > 0 ? std::optional(count / span_s) : std::nullopt;
}

// A moment's backlog is what was due by then and has not ended by then, sent or not.
void add_backlog(const std::vector<RequestRecord>& records, const RunResult& run, Summary& out) {
  const double middle_s = run.sending_s / 2;
  const auto backlog = [&](double at_s) {
    return std::count_if(records.begin(), records.end(),
                         [&](const RequestRecord& r) { return r.due_s <= at_s && r.end_s > at_s; });
  };
  // What was never sent was due late, since places are given in the order of the due times.
  out.backlog_growth = backlog(run.sending_s) + run.num_missed - backlog(middle_s);
  out.num_due_in_second_half =
      run.num_missed + std::count_if(records.begin(), records.end(), [&](const RequestRecord& r) {
        return r.due_s > middle_s && r.due_s <= run.sending_s;
      });
}

}  // namespace

double Summary::failed_share() const {
  const std::int64_t bad = num_failed + num_empty + num_missed;
  return num_ok + bad > 0 ? static_cast<double>(bad) / static_cast<double>(num_ok + bad) : 0;
}

double Summary::good_share() const {
  const std::int64_t all = num_ok + num_failed + num_empty + num_missed;
  return all > 0 ? static_cast<double>(num_good) / static_cast<double>(all) : 0;
}

std::vector<std::string> Summary::saturation() const {
  std::vector<std::string> reasons;
  if (num_ok == 0) return reasons;  // no figure that it could be in
  char line[160];
  if (own_delay_ms.count() > 0 && own_delay_ms.percentile(99) > kSlowMs) {
    std::snprintf(line, sizeof line, "it sent requests late by itself, p99 %.1f ms", own_delay_ms.percentile(99));
    reasons.emplace_back(line);
  }
  if (client.read_lag_ms.count() > 0 && client.read_lag_ms.percentile(99) > kSlowMs) {
    std::snprintf(line, sizeof line, "it read late, p99 %.1f ms", client.read_lag_ms.percentile(99));
    reasons.emplace_back(line);
  }
  if (duration_s > 0 && client.cpu_s > kBusyShare * client.cores * duration_s) {
    std::snprintf(line, sizeof line, "it used %.2f of the %.0f cores that it can use", client.cpu_s / duration_s,
                  client.cores);
    reasons.emplace_back(line);
  }
  return reasons;
}

std::vector<std::string> Summary::warnings() const {
  std::vector<std::string> out;
  if (!expects_cached && cached_tokens > prompt_tokens - cached_tokens) {
    out.emplace_back(
        "more than half of the prompt tokens were in the server's cache, though no --shared-prefix was asked for: an "
        "earlier run with the same --seed?");
  }
  if (num_short > 0) {
    out.push_back(count_text(num_short) + " of " + count_text(num_ok) + " answers were shorter than asked, " +
                  count_text(num_missing_tokens) +
                  " tokens fewer: the server's context ended them, or it does not ignore end tokens");
  }
  for (const std::string& reason : saturation()) {
    out.push_back("the client itself may be the bottleneck: " + reason);
  }
  return out;
}

Summary summarize(const std::vector<RequestRecord>& records, const RunResult& run, bool open_loop,
                  const SummaryOptions& options, ClientLoad client) {
  Summary out;
  out.partial = run.stopped;
  out.open_loop = open_loop;
  out.duration_s = run.duration_s;
  out.num_missed = run.num_missed;
  out.goals = options.goals;
  out.expects_cached = options.expects_cached;
  out.client = std::move(client);
  const Window window{options.warmup_s, (run.timed_out ? run.sending_s : run.duration_s) - options.cooldown_s};
  out.window_s = window.length();
  for (const RequestRecord& record : records) {
    if (!window.holds(record.due_s)) {
      ++out.num_left_out;
      if (record.outcome == Outcome::kFailed || record.outcome == Outcome::kEmpty) ++out.num_left_out_failed;
      continue;
    }
    count(record, out);
    if (record.outcome == Outcome::kOk) add_figures(record, out);
  }
  add_rates(records, window, out);
  add_backlog(records, run, out);
  out.due_per_second = rate_of(records, &RequestRecord::due_s, run.num_missed, run);
  out.sent_per_second = rate_of(records, &RequestRecord::sent_s, 0, run);
  return out;
}

std::vector<std::pair<double, double>> token_rates(const std::vector<RequestRecord>& records, double from_s,
                                                   double to_s) {
  const double length = to_s - from_s;
  if (!(length > 0)) return {};
  const double parts = std::clamp(std::floor(length), 1.0, kMostParts);
  const double width = length / parts;
  std::vector<std::pair<double, double>> out;
  for (double i = 0; i < parts; ++i) out.emplace_back(from_s + (i + 0.5) * width, 0);
  for (const RequestRecord& record : records) {
    for (const TokenMoment& moment : record.times.moments) {
      if (moment.at_s < from_s || moment.at_s > to_s) continue;
      const double part = std::min(std::floor((moment.at_s - from_s) / width), parts - 1);
      out[static_cast<std::size_t>(part)].second += static_cast<double>(moment.tokens);
    }
  }
  for (auto& [at_s, rate] : out) rate /= width;
  return out;
}

}  // namespace folio::client
