// The bodies of POST /v1/completions and /v1/chat/completions as folio.v1 messages. Pure functions, any thread.
//
// Every field of OpenAI's documents either works or is refused by its name; so is one that nobody knows. Ranges are
// checked where gRPC's are (server/validation), and the complaint gets the name that it has here.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/generation.h"
#include "server/http/json_reader.h"
#include "server/http/openai_form.h"

namespace folio {

inline constexpr std::int64_t kDefaultCompletionTokens = 16;  // OpenAI's; a chat's default is the rest of the context

struct OpenAiRequest {
  GenerationInput input;
  OpenAiForm form;  // call, stream, include_usage, logprobs
};

// Errors are kInvalidArgument, the field first.
Result<OpenAiRequest> read_openai_request(OpenAiCall call, std::string_view body);

// Appends the token ids of `list`, the field `name`; whether the vocabulary has them is not looked at.
void read_token_ids(ObjectReader& in, const std::string& name, const nlohmann::json& list,
                    google::protobuf::RepeatedField<std::int32_t>& out);

// A complaint about a folio.v1 field under its name in `call`: "sampling.top_p: ..." -> "top_p: ...".
Error with_openai_names(Error error, OpenAiCall call);

}  // namespace folio
