// How the answer to an OpenAI-style request is to look, beside what the engine is told.
#pragma once
#include <cstdint>
#include <string>

namespace folio {

enum class OpenAiCall : std::uint8_t { kCompletion, kChat };

struct OpenAiForm {
  OpenAiCall call = OpenAiCall::kCompletion;
  bool stream = false;
  bool include_usage = false;  // of a stream: one more event, with the usage
  bool logprobs = false;
  bool echo_logprobs = false;    // of a completion: those of the prompt's tokens stand before the output's
  bool prompt_logprobs = false;  // the prompt's tokens have a list of their own
  std::string model;             // the one served
  std::string id_prefix;         // before the server's number of the request
  std::int64_t created = 0;      // seconds since 1970
};

}  // namespace folio
