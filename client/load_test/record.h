// What became of one request of a load, as the client saw it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "client/load_test/token_times.h"
#include "client/load_test/transport.h"

namespace folio::client {

enum class Outcome {
  kOk,         // ended well, with at least one token
  kEmpty,      // ended well without a token: has no latency
  kFailed,     // anything else
  kCancelled,  // by us, as the load asked (--cancel-fraction)
  kAborted,    // by us, since the run was ended
};

// Seconds are from the start of the load.
struct RequestRecord {
  std::int64_t number = 0;
  Outcome outcome = Outcome::kFailed;
  std::string error;              // kFailed: "UNAVAILABLE", "finish ERROR", "no end" ...
  std::string message;            // and the server's words
  double due_s = 0;               // when it should have been sent: latency counts from here
  double ready_s = 0;             // when the limit of concurrency let it go: due_s or later
  double sent_s = 0;              // when it was
  std::optional<double> first_s;  // the first message with content
  double end_s = 0;
  std::int64_t prompt_tokens = 0;  // by the server's usage; 0: it did not say
  std::int64_t cached_tokens = 0;
  // By the server's usage, else the ids that came. Neither: unknown, or the wire's estimate.
  std::optional<std::int64_t> output_tokens;
  bool estimated = false;      // output_tokens is what the server's tokenizer makes of the whole text
  bool counts_differ = false;  // ids came, and usage says another number
  std::int64_t num_asked = 0;  // output tokens that it should have had; 0: its length was not the load's to say
  TokenTimes times;            // of kOk with known tokens

  double ttft_ms() const { return (*first_s - due_s) * 1000; }  // REQUIRES first_s
  double e2e_ms() const { return (end_s - due_s) * 1000; }
  double send_delay_ms() const { return (sent_s - due_s) * 1000; }
  // It ended well with fewer tokens than the load asked of it. Of an estimate nobody knows.
  bool is_short() const { return !estimated && output_tokens && *output_tokens < num_asked; }
  double own_delay_ms() const { return (sent_s - ready_s) * 1000; }  // the client's slowness alone
  // The mean of the gaps between tokens; none with a single token.
  std::optional<double> tpot_ms() const;
  // The smallest that 99 of 100 of its gaps do not exceed (nearest rank).
  std::optional<double> itl_p99_ms() const;
};

// RESOURCE_EXHAUSTED or HTTP 429: the server's own decision not to take more.
bool is_refusal(const RequestRecord& record);

// "ok", "empty", "failed", "cancelled", "aborted"
const char* outcome_name(Outcome outcome);

// One line of a records file: the fields above, times in ms where they are latencies.
nlohmann::json to_json(const RequestRecord& record);

}  // namespace folio::client
