// folio-client bench: a load test over streams, and bench sweep: one after the other, up to the knee. docs/client.md
// says the rule of every figure.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/common.h"
#include "client/load_test/arrivals.h"
#include "client/load_test/goals.h"
#include "client/load_test/workload.h"

namespace folio::client {

inline constexpr int kExitManyFailed = 3;  // more requests failed than --max-failed allows

enum class Api { kGrpc, kOpenAi };

struct BenchOptions {
  Connection connection;
  Api api = Api::kGrpc;
  int connections = 1;
  int threads = 1;  // that read
  WorkloadOptions workload;
  // In the place of workload.prompts. Default: ids; where the server does not say how large its vocabulary is, words;
  // and where it does not tokenise either, text.
  std::optional<PromptKind> prompts;
  std::string trace_file;  // empty: none

  // When requests are sent. Without rate, and without a trace that has times, the loop is closed.
  std::optional<double> rate;
  std::optional<ArrivalKind> arrivals;  // default: gamma if burstiness is given, else Poisson
  std::optional<double> burstiness;
  std::optional<int> concurrency;  // default: 8 in a closed loop
  std::optional<int> max_concurrency;
  double ramp_s = 0;
  std::optional<double> duration_s;
  std::optional<std::int64_t> num_requests;  // default without a duration: 64, or the trace's

  double warmup_s = 0, cooldown_s = 0;
  std::vector<Goal> goals;
  double max_failed_percent = 10;
  std::string json_file, csv_file, plot_file, records_file;  // empty: none

  void add_to(CLI::App& app);
};

struct SweepOptions {
  BenchOptions bench;  // without rate and concurrency
  bool over_rate = false;
  std::vector<double> points;  // empty: from, 2 from, 4 from ... until the knee is passed, at most `most`
  double from = 1, most = 1024;

  void add_to(CLI::App& app);

 private:
  void check_points() const;
};

// Both give an exit code. The first Ctrl-C ends the run with a partial summary, the second ends the program at once.
// They throw std::runtime_error for what is found before any request is sent: a file, or flags that do not go together.
// A server that cannot be used is told on the error output.
int run_bench(const BenchOptions& options, Interrupts& interrupts);
int run_sweep(const SweepOptions& options, Interrupts& interrupts);

}  // namespace folio::client
