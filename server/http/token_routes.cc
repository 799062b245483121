#include "server/http/token_routes.h"

#include <limits>
#include <utility>
#include <vector>

#include "server/answer_size.h"
#include "server/http/http_error.h"
#include "server/http/json_reader.h"
#include "server/http/json_writer.h"
#include "server/http/openai_messages.h"
#include "server/http/openai_request.h"

namespace folio {
namespace {

using nlohmann::json;

HttpResponse json_response(std::string body) {
  HttpResponse out;
  out.content_type = "application/json";
  out.body = std::move(body);
  return out;
}

HttpResponse refused(Error error) {
  // An answer that is too large. Not 429, which says that it may be tried again.
  if (error.code == ErrorCode::kResourceExhausted) error.code = ErrorCode::kInvalidArgument;
  return error_response(error);
}

Result<v1::TokenizeResponse> tokenize_text(const Generation& generation, ObjectReader& in, std::string text) {
  v1::TokenizeRequest request;
  request.set_text(std::move(text));
  request.set_model(in.text("model").value_or(""));
  request.set_add_special(in.boolean("add_special_tokens").value_or(false));
  request.set_parse_special(in.boolean("parse_special").value_or(false));
  if (const auto error = in.finish()) return *error;
  auto tokenized = generation.tokenize(request);
  if (!tokenized) return with_openai_names(tokenized.error(), OpenAiCall::kCompletion);
  return tokenized;
}

Result<v1::TokenizeResponse> tokenize_chat(const Generation& generation, ObjectReader& in) {
  v1::ApplyChatTemplateRequest request;
  request.set_model(in.text("model").value_or(""));
  if (const auto value = in.boolean("add_generation_prompt")) request.set_add_generation_prompt(*value);
  read_messages(in, *request.mutable_messages());
  read_template_args(in, *request.mutable_template_args());
  if (const auto error = in.finish()) return *error;
  const auto rendered = generation.apply_chat_template(request);
  if (!rendered) return with_openai_names(rendered.error(), OpenAiCall::kChat);
  v1::TokenizeResponse out;
  *out.mutable_tokens() = rendered->tokens();
  return out;
}

std::string tokenize_json(const Generation& generation, const v1::TokenizeResponse& tokenized, bool with_pieces) {
  std::string out;
  JsonObject object(out);
  object.integer("count", tokenized.tokens_size());
  object.integer("max_model_len", generation.list_models().models(0).max_context());
  append_json_array(object.key("tokens"), tokenized.tokens(),
                    [](std::string& to, std::int32_t id) { to += std::to_string(id); });
  if (with_pieces) append_json_array(object.key("token_strs"), tokenized.pieces(), append_json_string);
  object.close();
  return out;
}

}  // namespace

HttpResponse answer_tokenize(const Generation& generation, const std::string& body) {
  const auto parsed = parse_json_object(body);
  if (!parsed) return error_response(parsed.error());
  ObjectReader in(*parsed);
  const bool with_pieces = in.boolean("return_token_strs").value_or(false);
  auto prompt = in.text("prompt");
  if (!in.failed() && !prompt && in.find("messages") == nullptr) in.fail("prompt", "must be given, or messages");
  if (with_pieces && !prompt) in.fail("return_token_strs", "only together with prompt");
  const auto tokenized = prompt ? tokenize_text(generation, in, std::move(*prompt)) : tokenize_chat(generation, in);
  if (!tokenized) return refused(tokenized.error());
  if (const auto error = check_answer_size(tokenized->ByteSizeLong(), kAskForParts)) return refused(*error);
  return json_response(tokenize_json(generation, *tokenized, with_pieces));
}

HttpResponse answer_detokenize(const Generation& generation, const std::string& body) {
  const auto parsed = parse_json_object(body);
  if (!parsed) return error_response(parsed.error());
  ObjectReader in(*parsed);
  v1::DetokenizeRequest request;
  request.set_model(in.text("model").value_or(""));
  if (const auto skip = in.boolean("skip_special_tokens")) request.set_skip_special(*skip);
  const json* tokens = in.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    in.fail("tokens", "must be a list of token ids");
  } else {
    read_token_ids(in, "tokens", *tokens, *request.mutable_tokens());
  }
  if (const auto error = in.finish()) return error_response(*error);
  const auto text = generation.detokenize(request);
  if (!text) return refused(text.error());
  if (const auto error = check_answer_size(text->ByteSizeLong(), kAskForParts)) return refused(*error);
  std::string out;
  JsonObject object(out);
  object.text("prompt", text->text());
  object.close();
  return json_response(std::move(out));
}

}  // namespace folio
