// folio-client bench: a closed-loop load test over streams. Each of C callers sends a request, reads it to its end, and
// sends the next. Prompts are random token ids of a fixed length, outputs have a fixed length (end tokens ignored).
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "client/common.h"
#include "client/statistics.h"

namespace folio::client {

struct BenchOptions {
  Connection connection;
  int concurrency = 8;
  int num_requests = 64;
  int prompt_tokens = 128;
  int output_tokens = 128;
  std::uint64_t seed = 0;  // of the prompts, and of the sampling
  float temperature = 1;
  std::string tenant;
  std::string json_file;  // empty: none
};

// How one request ended, as the client saw it.
struct BenchRecord {
  enum class Kind { kOk, kEmpty, kFailed, kAborted };
  Kind kind = Kind::kFailed;
  std::string error;    // kFailed: "UNAVAILABLE", "finish ERROR", "no end" ...
  std::string message;  // and the server's words
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;  // by the server's usage if it came, else the ids that came
  double ttft_ms = 0;
  double e2e_ms = 0;
  // One per token after the first: a chunk's gap is shared by its tokens; tokens that came with the first have 0.
  Samples itl_ms;
};

struct BenchSummary {
  std::int64_t num_ok = 0, num_empty = 0, num_failed = 0, num_aborted = 0;
  std::int64_t prompt_tokens = 0, output_tokens = 0;  // of the successful requests
  Samples ttft_ms, itl_ms, e2e_ms;                    // of the successful requests
  std::map<std::string, std::int64_t> errors;         // kind -> count
  std::map<std::string, std::string> first_messages;  // kind -> the first words
  double duration_s = 0;
  bool partial = false;

  void add(const BenchRecord& record);
  std::string text() const;
  nlohmann::json json() const;
};

// An exit code: kExitFailed when nothing succeeded. The first Ctrl-C ends the run with a partial summary, the second
// ends the program at once.
int run_bench(const BenchOptions& options, Interrupts& interrupts);

}  // namespace folio::client
