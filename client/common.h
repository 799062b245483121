// What the commands of folio-client share: the channel, sampling flags, Ctrl-C, and words for errors.
#pragma once
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "folio/v1/generation.grpc.pb.h"

namespace folio::client {

// Exit codes: docs/client.md has the table.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;     // a wrong command line, or a prompt that is not UTF-8
inline constexpr int kExitNoServer = 4;  // nobody there, or not ready
inline constexpr int kExitRefused = 5;   // the server said no
inline constexpr int kExitInterrupted = 130;

inline constexpr const char* kDefaultAddress = "127.0.0.1:50051";
inline constexpr const char* kDefaultControlAddress = "127.0.0.1:50052";

// How to reach a server and what to show at its door.
struct Connection {
  std::string address = kDefaultAddress;
  std::string api_key;                    // empty: none
  std::string tls_ca, tls_cert, tls_key;  // paths of PEM files; empty: in the clear, and no certificate of our own

  void add_to(CLI::App& app);           // --address and the others
  void add_security_to(CLI::App& app);  // all but --address
  // Goes with every call.
  void authorize(grpc::ClientContext& context) const;
};

// A channel without hidden retries, with a receive limit that no answer reaches. Channels to the same server share a
// network connection unless they have their `own`. Throws std::runtime_error naming a file that cannot be read.
std::shared_ptr<grpc::Channel> make_channel(const Connection& connection, bool own = false);

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

  void add_to(CLI::App& app);
  template <class Request>  // v1::GenerateRequest or v1::ChatRequest
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

  // Called on the signal thread, with the signal and the number of signals since this was set (1, 2, ...).
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

// Appends a chunk to the whole answer.
void join(const v1::GenerateChunk& chunk, v1::GenerateResponse& response);
std::string to_json(const v1::GenerateResponse& response);

}  // namespace folio::client
