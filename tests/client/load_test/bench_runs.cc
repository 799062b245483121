#include "tests/client/load_test/bench_runs.h"

#include <gtest/gtest.h>

#include <sstream>
#include <utility>

#include "tests/support/temp_folder.h"

namespace folio::testing {
namespace {

const client::Interrupts& kEarly = interrupts();

}  // namespace

client::Interrupts& interrupts() {
  static client::Interrupts instance;
  return instance;
}

std::vector<nlohmann::json> read_records(const std::string& path) {
  std::vector<nlohmann::json> out;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

Outcomes bench(const MockServer& server, client::BenchOptions options) {
  const TempFolder folder;
  options.connection.address = server.address();
  options.json_file = folder.path("bench.json");
  options.csv_file = folder.path("bench.csv");
  options.plot_file = folder.path("bench.svg");
  options.records_file = folder.path("records.jsonl");
  ::testing::internal::CaptureStdout();
  Outcomes out;
  out.exit_code = client::run_bench(options, interrupts());
  out.text = ::testing::internal::GetCapturedStdout();
  out.json = nlohmann::json::parse(read_file(options.json_file));
  out.records = read_records(options.records_file);
  out.csv = read_file(options.csv_file);
  out.plot = read_file(options.plot_file);
  return out;
}

client::BenchOptions small_bench(std::int64_t num_requests, int concurrency) {
  client::BenchOptions options;
  options.num_requests = num_requests;
  options.concurrency = concurrency;
  options.workload.prompt_tokens = client::Lengths(3);
  options.workload.output_tokens = client::Lengths(100);
  return options;
}

}  // namespace folio::testing
