#include "server/http/http_error.h"

#include <algorithm>

#include "engine/text/detokenizer.h"
#include "server/http/json_writer.h"

namespace folio {
namespace {

constexpr std::size_t kMaxMessageBytes = 1024;
constexpr std::size_t kMaxParamBytes = 256;
constexpr std::int32_t kDefaultRetryMs = 1000;

// OpenAI's classes of errors; clients choose their exception by the status.
std::string_view error_type(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status < 500 ? "invalid_request_error" : "server_error";
}

std::string_view error_code(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUnauthenticated:
      return "invalid_api_key";
    case ErrorCode::kPermissionDenied:
      return "permission_denied";
    case ErrorCode::kNotFound:
      return "model_not_found";
    case ErrorCode::kResourceExhausted:
      return "rate_limit_exceeded";
    case ErrorCode::kUnavailable:
      return "service_unavailable";
    case ErrorCode::kDeadlineExceeded:
      return "deadline_exceeded";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kFailedPrecondition:
      return "no_chat_template";
    case ErrorCode::kInvalidArgument:
      // What frameworks look for to cut a prompt and try again.
      return error.over_context ? "context_length_exceeded" : "";
    default:
      return "";
  }
}

bool is_field_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
         c == '[' || c == ']' || c == '-';
}

// The field that stands before the first ": ".
std::string_view field_of(const Error& error) {
  if (error.code == ErrorCode::kNotFound) return "model";
  if (error.code != ErrorCode::kInvalidArgument && error.code != ErrorCode::kPermissionDenied) return "";
  const std::size_t colon = error.message.find(": ");
  if (colon == std::string::npos || colon > kMaxParamBytes) return "";
  const std::string_view field = std::string_view(error.message).substr(0, colon);
  return std::all_of(field.begin(), field.end(), is_field_byte) ? field : "";
}

void append_or_null(JsonObject& object, std::string_view name, std::string_view text) {
  if (text.empty()) {
    object.raw(name, "null");
  } else {
    object.text(name, text);
  }
}

std::string make_json(int status, std::string_view message, std::string_view param, std::string_view code) {
  std::string out;
  JsonObject outer(out);
  JsonObject inner(outer.key("error"));
  inner.text("message", truncate_utf8(sanitize_utf8(message), kMaxMessageBytes));
  inner.text("type", error_type(status));
  append_or_null(inner, "param", param);
  append_or_null(inner, "code", code);
  inner.close();
  outer.close();
  return out;
}

HttpResponse json_response(int status, std::string body) {
  HttpResponse out;
  out.status = status;
  out.content_type = "application/json";
  out.body = std::move(body);
  return out;
}

}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kFailedPrecondition:
      return 400;
    case ErrorCode::kUnauthenticated:
      return 401;
    case ErrorCode::kPermissionDenied:
      return 403;
    case ErrorCode::kResourceExhausted:
      return 429;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kDeadlineExceeded:
      return 504;
    case ErrorCode::kCancelled:
      return 499;
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

std::string error_json(const Error& error) {
  return make_json(http_status(error.code), error.message, field_of(error), error_code(error));
}

HttpResponse error_response(const Error& error) {
  HttpResponse out = json_response(http_status(error.code), error_json(error));
  if (out.status == 401) out.headers.emplace_back("WWW-Authenticate", "Bearer");
  const bool comes_back = out.status == 429 || out.status == 503;
  if (comes_back) {
    const std::int32_t ms = error.retry_after_ms > 0 ? error.retry_after_ms : kDefaultRetryMs;
    out.headers.emplace_back("Retry-After", std::to_string((ms + 999) / 1000));
  }
  return out;
}

HttpResponse error_response(int status, std::string_view message, std::string_view code) {
  HttpResponse out = json_response(status, make_json(status, message, "", code));
  if (status == 503) out.headers.emplace_back("Retry-After", std::to_string(kDefaultRetryMs / 1000));
  return out;
}

}  // namespace folio
