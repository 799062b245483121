// Runs of folio-client bench inside a test program, with all that they print and write.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "client/common.h"
#include "client/load_test/bench.h"
#include "tests/client/load_test/mock_server.h"

namespace folio::testing {

// One for the program: made before main, so that signals are blocked before any thread of gRPC exists.
client::Interrupts& interrupts();

struct Outcomes {
  int exit_code = 0;
  std::string text;
  nlohmann::json json;
  std::vector<nlohmann::json> records;
  std::string csv, plot;
};

std::vector<nlohmann::json> read_records(const std::string& path);
Outcomes bench(const MockServer& server, client::BenchOptions options);
// Prompts of 3 tokens, answers of 100.
client::BenchOptions small_bench(std::int64_t num_requests, int concurrency);

}  // namespace folio::testing
