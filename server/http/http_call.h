// A request under way: the call makes the parts of its answer, the connection writes them, one at a time.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "server/caller.h"
#include "server/generation.h"
#include "server/http/http_message.h"
#include "server/http/openai_form.h"

namespace folio {

struct ReplyPart {
  std::optional<HttpResponse> response = {};  // in the first part
  bool streams = false;    // in the first part: the body comes in parts, and response->body is not used
  std::string bytes = {};  // of a stream
  bool last = true;
};

// The connection as its call sees it.
class ReplyPort {
 public:
  virtual ~ReplyPort() = default;
  // Any thread, at once; the next one after written() alone.
  virtual void send(ReplyPart part) = 0;
};

// The call as its connection sees it. HTTP thread, at once.
class HttpCall {
 public:
  virtual ~HttpCall() = default;
  virtual void written() = 0;  // the part that was sent is on its way: the next may come
  virtual void abandon() = 0;  // nobody reads any more: what was to be made is not
};

// Each starts its call, which answers through the port if that is still there then.
std::shared_ptr<HttpCall> start_generation(Generation& generation, OpenAiCall call, HttpRequest request, Caller caller,
                                           std::weak_ptr<ReplyPort> port);
using WorkerAnswer = HttpResponse (*)(const Generation& generation, const std::string& body);  // front worker
std::shared_ptr<HttpCall> start_worker(Generation& generation, WorkerAnswer answer, HttpRequest request,
                                       std::weak_ptr<ReplyPort> port);

}  // namespace folio
