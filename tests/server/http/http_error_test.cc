#include "server/http/http_error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "engine/text/detokenizer.h"

namespace folio {
namespace {

using nlohmann::json;

json error_of(const HttpResponse& response) {
  EXPECT_EQ(response.content_type, "application/json");
  return json::parse(response.body).at("error");
}

TEST(HttpError, StatusTypeAndCode) {
  const struct {
    ErrorCode code;
    int status;
    const char* type;
    json short_name;
  } cases[] = {
      {ErrorCode::kInvalidArgument, 400, "invalid_request_error", nullptr},
      {ErrorCode::kFailedPrecondition, 400, "invalid_request_error", "no_chat_template"},
      {ErrorCode::kUnauthenticated, 401, "authentication_error", "invalid_api_key"},
      {ErrorCode::kPermissionDenied, 403, "permission_error", "permission_denied"},
      {ErrorCode::kNotFound, 404, "invalid_request_error", "model_not_found"},
      {ErrorCode::kResourceExhausted, 429, "rate_limit_error", "rate_limit_exceeded"},
      {ErrorCode::kCancelled, 499, "invalid_request_error", "cancelled"},
      {ErrorCode::kInternal, 500, "server_error", nullptr},
      {ErrorCode::kUnavailable, 503, "server_error", "service_unavailable"},
      {ErrorCode::kDeadlineExceeded, 504, "server_error", "deadline_exceeded"},
  };
  for (const auto& c : cases) {
    const HttpResponse response = error_response({c.code, "words"});
    EXPECT_EQ(response.status, c.status);
    const json error = error_of(response);
    EXPECT_EQ(error["message"], "words");
    EXPECT_EQ(error["type"], c.type);
    EXPECT_EQ(error["code"], c.short_name);
  }
}

TEST(HttpError, ParamIsTheFieldThatStandsFirst) {
  const auto param = [](const char* message) {
    return error_of(error_response({ErrorCode::kInvalidArgument, message}))["param"];
  };
  EXPECT_EQ(param("top_p: 2 is not in (0, 1]"), "top_p");
  EXPECT_EQ(param("messages[3].content[0].type: no"), "messages[3].content[0].type");
  EXPECT_EQ(param("the template says: no"), nullptr);
  EXPECT_EQ(param("nothing"), nullptr);
  EXPECT_EQ(error_of(error_response({ErrorCode::kNotFound, "model: no"}))["param"], "model");
  EXPECT_EQ(error_of(error_response({ErrorCode::kPermissionDenied, "tenant: no"}))["param"], "tenant");
  EXPECT_EQ(error_of(error_response({ErrorCode::kInternal, "top_p: no"}))["param"], nullptr);
}

TEST(HttpError, ALongPromptHasTheCodeThatClientsLookFor) {
  Error error{ErrorCode::kInvalidArgument,
              "prompt: 9000 tokens and one to be made are over the context of 8192 tokens"};
  EXPECT_EQ(error_of(error_response(error))["code"], nullptr);
  error.over_context = true;
  EXPECT_EQ(error_of(error_response(error))["code"], "context_length_exceeded");
}

TEST(HttpError, RetryAfterInWholeSeconds) {
  const auto retry = [](const Error& error) -> std::string {
    for (const auto& [name, value] : error_response(error).headers) {
      if (name == "Retry-After") return value;
    }
    return "";
  };
  EXPECT_EQ(retry({ErrorCode::kResourceExhausted, "full", 1}), "1");
  EXPECT_EQ(retry({ErrorCode::kResourceExhausted, "full", 1001}), "2");
  EXPECT_EQ(retry({ErrorCode::kUnavailable, "loading"}), "1");
  EXPECT_EQ(retry({ErrorCode::kInvalidArgument, "n: no"}), "");
}

TEST(HttpError, MessagesAreShortAndValid) {
  std::string long_text;
  while (long_text.size() < 100'000) long_text += "\xE6\xBC\xA2";
  const HttpResponse response = error_response({ErrorCode::kInvalidArgument, "a\xFF: " + long_text});
  EXPECT_LT(response.body.size(), 1200U);
  const std::string message = error_of(response)["message"];
  EXPECT_TRUE(is_valid_utf8(message));
  EXPECT_EQ(message.substr(message.size() - 3), "\xE6\xBC\xA2");
}

TEST(HttpError, Unauthorized) {
  const HttpResponse response = error_response({ErrorCode::kUnauthenticated, "no key"});
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(error_of(response)["code"], "invalid_api_key");
  EXPECT_EQ(response.headers.at(0), std::make_pair(std::string("WWW-Authenticate"), std::string("Bearer")));
}

}  // namespace
}  // namespace folio
