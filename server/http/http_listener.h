// The HTTP front's listener: one address, one thread for all its connections ("folio-http"). The thread moves bytes and
// frames; reading JSON, tokenising and rendering are done by the front worker and the dispatcher (server/generation.h).
#pragma once
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "server/generation.h"
#include "server/http/http_options.h"

namespace folio {

class HttpListener {
 public:
  // Binds and starts to answer: until serve() and set_serving(true) with 503, but for /health. Throws
  // std::runtime_error naming "host:port" and the reason. A port is never shared.
  explicit HttpListener(HttpOptions options);
  // Shutdown, at once. No call may be left that could still answer: wait for Generation::wait_calls_done, or let the
  // generation go first.
  ~HttpListener();
  HttpListener(const HttpListener&) = delete;
  HttpListener& operator=(const HttpListener&) = delete;

  int port() const;
  // From now on calls are served. `generation` and what `metrics` reads outlive this listener's shutdown. `metrics`:
  // the text of GET /metrics, made on the listener's thread; without it there is no such path.
  void serve(Generation& generation, std::function<std::string()> metrics = nullptr);
  void set_serving(bool serving);  // what /ready says
  // Takes no connection and no request any more, closes idle connections at once, the others after the answer that is
  // under way and at the latest at the deadline. Blocks. Once.
  void shutdown(TimePoint deadline);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace folio
