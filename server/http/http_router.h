// Which request is whose: paths, methods, keys, media types, CORS. What needs no model is answered here at once.
//
// Deny by default: every path but /health and /ready asks for a key where keys are in use, also one that does not
// exist. Paths are compared as they were sent: there is no decoding, no trailing slash, no other spelling of one.
#pragma once
#include <atomic>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "server/generation.h"
#include "server/http/http_call.h"
#include "server/http/http_message.h"
#include "server/http/http_options.h"

namespace folio {

class HttpRouter {
 public:
  enum class Route {
    kCompletions,
    kChat,
    kModels,
    kModel,
    kTokenize,
    kDetokenize,
    kHealth,
    kReady,
    kMetrics,
  };
  struct Admitted {
    Route route = Route::kHealth;
    Caller caller;
  };

  explicit HttpRouter(const HttpOptions& options) : options_(options), started_(std::time(nullptr)) {}

  // From now on calls are served; before, they are answered 503. `generation` outlives every call. `metrics`: the text
  // of GET /metrics, made on the HTTP thread; without it there is no such path. Any thread, once.
  void serve(Generation& generation, std::function<std::string()> metrics) {
    metrics_ = std::move(metrics);
    generation_.store(&generation);
  }
  void set_ready(bool ready) { ready_.store(ready); }

  // By the header alone: a refusal, or what to do when the body is there.
  std::variant<HttpResponse, Admitted> admit(const HttpRequest& head) const;
  // The answer, or the call that will give it through `port`.
  std::variant<HttpResponse, std::shared_ptr<HttpCall>> start(HttpRequest request, Admitted admitted,
                                                              std::weak_ptr<ReplyPort> port) const;
  // What each response to a request with this header carries.
  void add_headers(const HttpRequest& head, HttpResponse& response) const;

 private:
  std::variant<HttpResponse, Caller> authorize(const HttpRequest& head) const;
  HttpResponse models() const;
  HttpResponse model(std::string_view path) const;

  const HttpOptions& options_;
  const std::time_t started_;
  std::function<std::string()> metrics_;  // read when generation_ was seen
  std::atomic<Generation*> generation_{nullptr};
  std::atomic<bool> ready_{false};
};

}  // namespace folio
