// The seam between the load test and a wire: what one request asks, what comes back and when.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/command_error.h"

namespace folio::client {

using SteadyTime = std::chrono::steady_clock::time_point;

// What one request asks for: plain data, the same for every wire.
struct RequestSpec {
  std::vector<std::int32_t> prompt;  // token ids; empty: `text` is the prompt
  std::string text;
  std::int64_t max_tokens = 128;
  bool ignore_eos = true;
  std::vector<std::string> stop;  // texts before which an answer ends
  int n = 1;
  float temperature = 1;
  std::optional<float> top_p;
  std::optional<std::int32_t> top_k;
  std::uint64_t seed = 0;
  std::string tenant;
  std::optional<std::chrono::milliseconds> deadline;  // from the moment it is sent
};

// What one message of a stream holds of one answer, as its bytes were read.
struct Arrival {
  SteadyTime at{};
  std::int64_t tokens = 0;      // ids in it; on a wire without ids, unknown: 0
  std::int64_t text_bytes = 0;  // a message with neither carries no content (a role, an empty delta, usage)
  std::int32_t index = 0;       // of the answer, in [0, n)
};

// How a stream ended.
struct StreamEnd {
  // When its last bytes were read, or its failure was seen. on_end may be called later than that.
  SteadyTime at{};
  // Empty: every output had its normal end (stop or length) and the stream its own. Else one word or two that group
  // alike failures: "UNAVAILABLE", "HTTP 503", "finish ERROR", "no end", "connection". What the caller did itself has
  // gRPC's names on every wire: "CANCELLED", "DEADLINE_EXCEEDED".
  std::string error;
  std::string message;                        // the server's words, or the system's; at most 200 bytes
  std::optional<std::int64_t> prompt_tokens;  // by the server's usage
  std::optional<std::int64_t> cached_tokens;
  std::optional<std::int64_t> output_tokens;
  // The server gave no usage: output_tokens is what its tokenizer makes of the joined text afterwards, which need not
  // be what was generated.
  bool is_estimate = false;
};

// Hears of one request on the transport's threads, one call at a time. After on_end nothing more comes, and the Call
// may be destroyed from within it.
class StreamListener {
 public:
  virtual ~StreamListener() = default;
  virtual void on_arrival(const Arrival& arrival) = 0;
  virtual void on_end(const StreamEnd& end) = 0;
};

// One request under way.
class Call {
 public:
  virtual ~Call() = default;
  // Any thread, any number of times: the stream ends soon, with the error "CANCELLED" if it has not ended before.
  virtual void cancel() = 0;
};

// What the server says of its model before the load begins.
struct ServedModel {
  std::string name;
  std::int32_t vocab_size = 0;  // 0: it does not say
  std::int64_t max_context = 0;
};

// A wire to one server, over one or more connections used in turn. Any thread.
class Transport {
 public:
  // Ends what still runs, as Call::cancel does. Not from within a listener.
  virtual ~Transport() = default;
  // Both block, so not from within a listener, and throw CommandError with the server's words.
  virtual ServedModel model() = 0;
  virtual std::vector<std::int32_t> tokenize(const std::string& text) = 0;
  // The listener outlives the call. Never blocks, never throws: what fails is told to on_end.
  virtual std::unique_ptr<Call> start(const RequestSpec& request, StreamListener& listener) = 0;
  // How late the reading threads were, in milliseconds, each time that they looked at a timer of their own: what their
  // lag adds to the times of arrivals. Empty: this wire does not measure it.
  virtual std::vector<double> read_lags_ms() { return {}; }
};

}  // namespace folio::client
