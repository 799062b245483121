// Fuzz target: a first byte says which call it is, the rest is its JSON body. It becomes a folio.v1 message that the
// door checks as any other, or is refused with a short message in valid UTF-8 and an error object that reads back. The
// bytes themselves, written as a JSON string, read back as the text that they are.
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "engine/text/detokenizer.h"
#include "server/http/http_error.h"
#include "server/http/json_writer.h"
#include "server/http/openai_request.h"
#include "server/validation.h"
#include "tests/fuzz/fuzz_target.h"

namespace folio {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestMessage = 1024;

void check_refusal(const Error& error) {
  fuzz_require(error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kNotFound, "the code");
  fuzz_require(!error.message.empty() && error.message.size() <= kLongestMessage, "a short message");
  fuzz_require(is_valid_utf8(error.message), "a message of text");
  const json told = json::parse(error_json(error), nullptr, false);
  fuzz_require(told.is_object() && told.size() == 1 && told.contains("error"), "OpenAI's form of an error");
  const json& inner = told.at("error");
  fuzz_require(inner.size() == 4 && inner.at("message").is_string() && inner.at("type").is_string(), "its members");
  fuzz_require(inner.contains("param") && inner.contains("code"), "its members that may be null");
}

template <class Request>
void check_request(const Request& request, OpenAiCall call) {
  Request copy;
  fuzz_require(copy.ParseFromString(request.SerializeAsString()), "a message that gRPC would take");
  const auto options = check_options(request, {"the-model", 1000, 8});
  if (!options) check_refusal(with_openai_names(options.error(), call));
}

void check_writer(const std::string& bytes) {
  std::string text;
  append_json_string(text, bytes);
  const json read = json::parse(text, nullptr, false);
  fuzz_require(read.is_string() && read.get<std::string>() == sanitize_utf8(bytes), "a string that reads back");
}

}  // namespace
}  // namespace folio

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace folio;
  if (size == 0) return 0;
  const OpenAiCall call = data[0] % 2 == 0 ? OpenAiCall::kCompletion : OpenAiCall::kChat;
  const std::string body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto read = read_openai_request(call, body);
  if (read) {
    std::visit([call](const auto& request) { check_request(request, call); }, read->input);
  } else {
    check_refusal(read.error());
  }
  check_writer(body);
  return 0;
}
