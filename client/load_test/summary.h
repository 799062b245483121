// The figures of a load test, from the records of its requests. docs/client.md says the rule of each.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "client/load_test/goals.h"
#include "client/load_test/record.h"
#include "client/load_test/runner.h"
#include "client/statistics.h"

namespace folio::client {

// What the client itself needed, which tells whether it was the bottleneck.
struct ClientLoad {
  double cpu_s = 0;     // of the whole process while the load ran
  double cores = 1;     // that its reading threads can use
  Samples read_lag_ms;  // Transport::read_lags_ms
  bool measures_lag = false;
};

struct SummaryOptions {
  double warmup_s = 0;    // requests that were due in the first seconds are left out
  double cooldown_s = 0;  // and those due in the last ones of the window
  std::vector<Goal> goals;
  bool expects_cached = false;  // the load itself has prompts that begin alike
};

struct Summary {
  bool partial = false;    // ended by a signal
  bool open_loop = false;  // there is a plan that the client can fall behind
  double duration_s = 0;   // from the first request to the end of the last
  // What the rates are over: from the first request to the end of the last, or to the end of the duration that ended
  // the sending, so that they are those under load; less warm-up and cool-down.
  double window_s = 0;

  // Requests that were due in the window, by how they ended.
  std::int64_t num_ok = 0, num_empty = 0, num_failed = 0, num_cancelled = 0, num_aborted = 0;
  std::int64_t num_refused = 0;                            // of num_failed
  std::int64_t num_missed = 0;                             // due and never sent
  std::int64_t num_late = 0;                               // sent more than kLateMs after they were due
  std::int64_t num_left_out = 0, num_left_out_failed = 0;  // due outside the window
  std::map<std::string, std::int64_t> errors;              // kind -> count
  std::map<std::string, std::string> first_messages;       // kind -> the first words

  // Of ok requests.
  std::int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
  bool expects_cached = false;          // SummaryOptions'
  std::int64_t num_estimated = 0;       // requests whose tokens are those of their text
  std::int64_t num_uncounted = 0;       // and those whose tokens are not known at all
  std::int64_t num_counts_differ = 0;   // the server's usage is not the number of ids that came
  std::int64_t num_short = 0;           // ended well with fewer tokens than the load asked of them,
  std::int64_t num_missing_tokens = 0;  // and so many fewer all together
  double requests_per_second = 0, prompt_tokens_per_second = 0, output_tokens_per_second = 0;
  double peak_output_tokens_per_second = 0;
  Samples ttft_ms, itl_ms, tpot_ms, e2e_ms;     // from when a request was due
  Samples ttft_from_sent_ms, e2e_from_sent_ms;  // the same from when it was sent
  Samples send_delay_ms, own_delay_ms;          // of all requests in the window
  // Open loop. None: of a single request, or of several at one moment, there is no rate.
  std::optional<double> due_per_second, sent_per_second;
  // Requests that were due in the second half of the sending, and by how many more were due and not ended at its end
  // than at its middle.
  std::int64_t num_due_in_second_half = 0, backlog_growth = 0;

  std::vector<Goal> goals;
  std::int64_t num_good = 0;
  double good_requests_per_second = 0, good_tokens_per_second = 0;

  ClientLoad client;

  // Of all that were due and neither cancelled nor aborted: the share that did not end ok.
  double failed_share() const;
  double good_share() const;
  // Why the client itself may have been the bottleneck; empty: it was not.
  std::vector<std::string> saturation() const;
  // What makes all the figures doubtful: that, and prompts found in the server's cache although the load has no two
  // that begin alike.
  std::vector<std::string> warnings() const;
};

inline constexpr double kLateMs = 100;

Summary summarize(const std::vector<RequestRecord>& records, const RunResult& run, bool open_loop,
                  const SummaryOptions& options, ClientLoad client);

// Tokens of ok requests a second, over equal parts of the run of at least a second each: (middle of the part, rate).
// The mean over the parts is the mean over the run, so the highest is not below it.
std::vector<std::pair<double, double>> token_rates(const std::vector<RequestRecord>& records, double from_s,
                                                   double to_s);

}  // namespace folio::client
