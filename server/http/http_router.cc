#include "server/http/http_router.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "server/http/http_error.h"
#include "server/http/json_writer.h"
#include "server/http/token_routes.h"

namespace folio {
namespace {

using Route = HttpRouter::Route;

struct Path {
  std::string_view path;
  Route route;
  bool is_post;
};
constexpr std::array<Path, 8> kPaths = {{
    {"/v1/completions", Route::kCompletions, true},
    {"/v1/chat/completions", Route::kChat, true},
    {"/v1/models", Route::kModels, false},
    {"/tokenize", Route::kTokenize, true},
    {"/detokenize", Route::kDetokenize, true},
    {"/health", Route::kHealth, false},
    {"/ready", Route::kReady, false},
    {"/metrics", Route::kMetrics, false},
}};
constexpr std::string_view kModelPrefix = "/v1/models/";

std::optional<Path> find_path(std::string_view path) {
  for (const Path& known : kPaths) {
    if (known.path == path) return known;
  }
  if (path.size() > kModelPrefix.size() && path.starts_with(kModelPrefix)) return Path{path, Route::kModel, false};
  return std::nullopt;
}

bool is_generation(const std::optional<Path>& path) {
  return path && (path->route == Route::kCompletions || path->route == Route::kChat);
}

bool is_public(const std::optional<Path>& path) {
  return path && (path->route == Route::kHealth || path->route == Route::kReady);
}

bool iequals(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

// The media type without its parameters.
std::string_view media_type(std::string_view content_type) {
  std::string_view type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return type;
}

// Any other type, or none, is what a page of another site may send without asking: a browser asks for this one.
std::optional<HttpResponse> check_media(const HttpRequest& head) {
  if (!head.content_encoding.empty() && !iequals(head.content_encoding, "identity")) {
    return error_response(415, "Content-Encoding: only identity is taken");
  }
  if (!iequals(media_type(head.content_type), "application/json")) {
    return error_response(415, "Content-Type: must be application/json");
  }
  return std::nullopt;
}

HttpResponse text_response(std::string content_type, std::string body) {
  HttpResponse out;
  out.content_type = std::move(content_type);
  out.body = std::move(body);
  return out;
}

HttpResponse options_response(const std::optional<Path>& path) {
  HttpResponse out;
  out.status = 204;
  out.headers.emplace_back("Allow", !path || path->is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
  return out;
}

// "%41" -> "A"; what is no escape stays as it is.
std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, value, 16).ptr == digits + 2) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

void append_model(std::string& out, const v1::ListModelsResponse::Model& model, std::time_t created) {
  JsonObject object(out);
  object.text("id", model.name());
  object.text("object", "model");
  object.integer("created", created);
  object.text("owned_by", "folio");
  object.integer("max_model_len", model.max_context());
  object.close();
}

}  // namespace

std::variant<HttpResponse, Caller> HttpRouter::authorize(const HttpRequest& head) const {
  if (!options_.authorize) return Caller();
  auto caller = options_.authorize({head.authorization.begin(), head.authorization.end()});
  if (!caller) {
    Generation* const generation = generation_.load();
    if (generation != nullptr && is_generation(find_path(head.path()))) generation->count_refusal(caller.error().code);
    return error_response(caller.error());
  }
  return std::move(*caller);
}

std::variant<HttpResponse, HttpRouter::Admitted> HttpRouter::admit(const HttpRequest& head) const {
  const std::optional<Path> path = find_path(head.path());
  // A browser's question before the request cannot carry a key, and does nothing.
  if (head.method == "OPTIONS") return options_response(path);
  Admitted out;
  if (!is_public(path)) {
    auto caller = authorize(head);
    if (auto* refusal = std::get_if<HttpResponse>(&caller)) return std::move(*refusal);
    out.caller = std::move(std::get<Caller>(caller));
  }
  const bool loading = generation_.load() == nullptr;
  if (!path || (path->route == Route::kMetrics && !loading && !metrics_)) {
    return error_response(404, "no such path; the calls are listed in docs/api.md", "not_found");
  }
  const bool method_fits = path->is_post ? head.method == "POST" : head.method == "GET" || head.method == "HEAD";
  if (!method_fits) {
    HttpResponse refusal =
        error_response(405, "this path takes " + std::string(path->is_post ? "POST" : "GET"), "method_not_allowed");
    refusal.headers.emplace_back("Allow", path->is_post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
    return refusal;
  }
  if (path->is_post) {
    if (auto refusal = check_media(head)) return std::move(*refusal);
  }
  out.route = path->route;
  if (!is_public(path) && loading) {
    return error_response({ErrorCode::kUnavailable, "the model is loading"});
  }
  return out;
}

std::variant<HttpResponse, std::shared_ptr<HttpCall>> HttpRouter::start(HttpRequest request, Admitted admitted,
                                                                        std::weak_ptr<ReplyPort> port) const {
  Generation* const generation = generation_.load();
  switch (admitted.route) {
    case Route::kCompletions:
    case Route::kChat: {
      const OpenAiCall call = admitted.route == Route::kChat ? OpenAiCall::kChat : OpenAiCall::kCompletion;
      return start_generation(*generation, call, std::move(request), std::move(admitted.caller), std::move(port));
    }
    case Route::kTokenize:
      return start_worker(*generation, answer_tokenize, std::move(request), std::move(port));
    case Route::kDetokenize:
      return start_worker(*generation, answer_detokenize, std::move(request), std::move(port));
    case Route::kModels:
      return models();
    case Route::kModel:
      return model(request.path());
    case Route::kHealth:
      return text_response("application/json", R"({"status":"ok"})");
    case Route::kReady:
      if (ready_.load()) return text_response("application/json", R"({"status":"ready"})");
      return error_response(
          {ErrorCode::kUnavailable, generation == nullptr ? "the model is loading" : "the server is shutting down"});
    case Route::kMetrics:
      return text_response("text/plain; version=0.0.4; charset=utf-8", metrics_());
  }
  return error_response({ErrorCode::kInternal, "a path without an answer"});
}

HttpResponse HttpRouter::models() const {
  std::string out;
  JsonObject object(out);
  object.text("object", "list");
  const v1::ListModelsResponse list = generation_.load()->list_models();
  append_json_array(object.key("data"), list.models(),
                    [this](std::string& to, const auto& model) { append_model(to, model, started_); });
  object.close();
  return text_response("application/json", std::move(out));
}

HttpResponse HttpRouter::model(std::string_view path) const {
  const std::string name = decoded(path.substr(kModelPrefix.size()));
  const v1::ListModelsResponse list = generation_.load()->list_models();
  for (const auto& model : list.models()) {
    if (model.name() != name) continue;
    std::string out;
    append_model(out, model, started_);
    return text_response("application/json", std::move(out));
  }
  return error_response({ErrorCode::kNotFound, "model: " + folio::quoted(name) + " is not served"});
}

void HttpRouter::add_headers(const HttpRequest& head, HttpResponse& response) const {
  if (!head.request_id.empty()) response.headers.emplace_back("X-Request-Id", head.request_id);
  const std::string& allowed = options_.cors_allow_origin;
  if (allowed.empty()) return;
  if (allowed != "*") response.headers.emplace_back("Vary", "Origin");
  if (head.origin.empty() || (allowed != "*" && head.origin != allowed)) return;
  response.headers.emplace_back("Access-Control-Allow-Origin", allowed);
  response.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (!head.is_preflight) return;
  response.headers.emplace_back("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS");
  // The asterisk does not stand for Authorization; it does for the fields that client libraries add.
  response.headers.emplace_back("Access-Control-Allow-Headers", "Authorization, Content-Type, *");
  response.headers.emplace_back("Access-Control-Max-Age", "600");
}

}  // namespace folio
