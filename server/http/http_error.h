// The one place where a refusal becomes an HTTP status with OpenAI's form of an error.
#pragma once
#include <string>
#include <string_view>

#include "base/error.h"
#include "server/http/http_message.h"

namespace folio {

int http_status(ErrorCode code);
// {"error":{"message","type","param","code"}}: the message is valid UTF-8 of at most 1024 bytes; param is the field
// that the message of a kInvalidArgument or kPermissionDenied names first, else null.
std::string error_json(const Error& error);
// With Retry-After where it can be tried again, and with WWW-Authenticate where a key is wanted.
HttpResponse error_response(const Error& error);

// A refusal that the transport makes itself. `code`: OpenAI's short name, empty for none.
HttpResponse error_response(int status, std::string_view message, std::string_view code = "");

}  // namespace folio
