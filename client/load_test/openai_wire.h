// What OpenAI-style servers understand and say, as text: requests to bytes, events to arrivals and an end. No socket,
// no time. Tried with the forms of vLLM, SGLang, llama.cpp's llama-server, TGI and folio.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/load_test/http_response_reader.h"
#include "client/load_test/sse_reader.h"
#include "client/load_test/transport.h"

namespace folio::client {

struct HttpAddress {
  bool tls = false;
  std::string host;  // without the brackets of an IPv6 address
  std::string port;
  std::string prefix;  // before the paths: "" or "/x"; an OpenAI base URL's last "/v1" is not part of it

  std::string authority() const;  // for the Host field
};

// host:port, http://host[:port][/prefix], https://...; host:port means TLS when `has_ca`. Throws UsageError.
HttpAddress parse_http_address(const std::string& address, bool has_ca);

// The whole request. `body`: JSON of a POST; empty: a GET. REQUIRES an api_key without control characters.
std::string http_request(const HttpAddress& address, const std::string& api_key, std::string_view path,
                         std::string_view body);

// The body of POST /v1/completions, streamed. Beyond OpenAI's own fields (prompt, which may be token ids, max_tokens,
// temperature, top_p, n, seed, stop, stream, stream_options.include_usage) it has those that only some servers know,
// each only when it is asked for: ignore_eos (vLLM, SGLang, llama-server, folio), top_k (the same), tenant (folio). n
// and seed are left out at 1 and 0, and a seed has 63 bits, since servers keep it in a signed number.
std::string completion_body(const RequestSpec& request, const std::string& model);

// Forms of POST /tokenize: vLLM's, SGLang's and folio's `prompt`, llama-server's `content`.
enum class TokenizeForm { kPrompt, kContent };
std::string tokenize_body(TokenizeForm form, const std::string& model, const std::string& text);
// The ids in the answer; nullopt where there are none.
std::optional<std::vector<std::int32_t>> parse_tokens(std::string_view body);

// The first model of GET /v1/models; nullopt where there is none.
std::optional<ServedModel> parse_models(std::string_view body);

// The words of an error's body, whichever form it has; at most 200 bytes, on one line.
std::string error_words(std::string_view body);

// One answer's stream, event after event.
class AnswerReader {
 public:
  explicit AnswerReader(int num_outputs) : num_outputs_(num_outputs) {}

  // What the event brings (`at` is the caller's); nullopt: it is no part of the answer but [DONE] or an error. `tokens`
  // are known where the server tells its usage in every event (continuous usage), else 0.
  std::optional<Arrival> read(const SseEvent& event);
  // [DONE] came: the stream had its end, whatever the connection does afterwards.
  bool is_done() const { return done_; }
  // How it ended, once the body is over; `at` is the caller's.
  StreamEnd end() const;
  // Without usage: the joined texts, one an output. Empty: there is usage, or there was too much text to keep.
  std::vector<std::string> texts_without_usage() const;

 private:
  struct Choice {
    std::string text;
    std::string finish_reason;
  };
  void fail(std::string error, std::string message);
  void read_choice(const nlohmann::json& choice, Arrival& arrival);
  void read_usage(const nlohmann::json& usage, Arrival& arrival);

  const int num_outputs_;
  std::vector<Choice> choices_;
  std::size_t num_kept_bytes_ = 0;
  bool done_ = false;
  bool is_continuous_ = true;  // every event with text had usage, so far
  StreamEnd end_;
};

// How a request ended whose answer, `body`, is no stream of a 200.
StreamEnd not_a_stream(const HttpHead& head, std::string_view body);

}  // namespace folio::client
