// What the commands of folio-client share: sampling flags, Ctrl-C, and what they print.
#pragma once
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "client/command_error.h"
#include "client/connection.h"
#include "folio/v1/generation.grpc.pb.h"

namespace folio::client {

// Flags that become fields of a GenerateRequest or ChatRequest; what was not given stays unset.
struct RequestFlags {
  std::string model;
  std::optional<float> temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<std::int32_t> top_k, n, logprobs, prompt_logprobs;
  bool echo = false;
  std::optional<std::uint64_t> seed;
  std::optional<std::int64_t> max_tokens;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  std::uint32_t time_limit_ms = 0;
  std::string tenant, salt;
  std::uint32_t pin_ms = 0;
  bool no_cache = false;

  void add_to(CLI::App& app);  // REQUIRES that the command has --json
  template <class Request>     // v1::GenerateRequest or v1::ChatRequest
  void apply(Request& request) const;
};

// Ctrl-C (and SIGTERM) without a signal handler: blocked everywhere, read by one thread, which calls back. Construct it
// before other threads are started.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Called on the signal thread, with the signal and the number of signals since this was set (1, 2, ...). The same
  // signal again within a tenth of a second is not counted: it is the same press.
  using Callback = std::function<void(int signal, int count)>;
  void on_interrupt(Callback callback);

 private:
  void watch();

  std::mutex mutex_;
  Callback callback_;
  int count_ = 0;
  bool quit_ = false;
  std::thread thread_;
};

// "UNAVAILABLE"
std::string_view code_name(grpc::StatusCode code);
// "STOP_TOKEN", "LENGTH" ...
std::string short_name(v1::FinishReason reason);

// Prints a model's text: on a terminal only what is printable().
void print_text(std::string_view text);
// The lines that --stats prints, on the error output.
void print_stats(const v1::GenerateResponse& response);

// Says on the error output that a time limit cut an answer, if one did.
void print_cut(const v1::GenerateResponse& response);

// Appends a chunk to the whole answer.
void join(const v1::GenerateChunk& chunk, v1::GenerateResponse& response);
std::string to_json(const v1::GenerateResponse& response);

}  // namespace folio::client
