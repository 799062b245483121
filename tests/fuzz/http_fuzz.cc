// Fuzz target: what a peer sends on one connection, after a byte that says how it is cut into packets. The parser takes
// the same requests out of it, and refuses at the same one, however it is cut; the router answers each head, and every
// answer is well-formed HTTP.
#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "server/http/http_router.h"
#include "server/http/request_parser.h"
#include "tests/fuzz/fuzz_target.h"

namespace folio {
namespace {

HttpOptions options() {
  HttpOptions out;
  out.cors_allow_origin = "https://example.org";
  out.limits.max_header_bytes = 600;
  out.limits.max_body_bytes = 1000;
  out.authorize = [](const std::vector<std::string_view>& authorization) -> Result<Caller> {
    if (authorization.size() == 1 && authorization.front() == "Bearer key") return Caller();
    return Error{ErrorCode::kUnauthenticated, "no such key"};
  };
  return out;
}

struct Conversation {
  std::vector<HttpRequest> requests;
  bool refused = false;
  bool unfinished = false;  // bytes of one more request came
};

void check_limits(const RequestParser& parser, const HttpLimits& limits) {
  fuzz_require(parser.num_body_bytes() <= limits.max_body_bytes, "a body within its limit");
}

// As a connection does it: packets come, the parser takes what it can, and the rest waits.
template <class NextSize>
Conversation converse(std::string_view bytes, const HttpLimits& limits, const NextSize& next_size) {
  Conversation out;
  std::string inbox;
  auto parser = std::make_unique<RequestParser>(limits);
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(std::max<std::size_t>(next_size(), 1), bytes.size());
    inbox.append(bytes.substr(0, size));
    bytes.remove_prefix(size);
    while (!inbox.empty()) {
      const bool had_head = parser->head_done();
      const std::size_t used = parser->put(inbox);
      fuzz_require(used <= inbox.size(), "no more is used than there is");
      inbox.erase(0, used);
      out.unfinished = true;
      if (parser->refusal()) {
        out.refused = true;
        return out;
      }
      check_limits(*parser, limits);
      if (parser->done()) {
        out.requests.push_back(parser->take());
        parser = std::make_unique<RequestParser>(limits);
        out.unfinished = false;
      } else if (used == 0 && had_head == parser->head_done()) {
        break;
      }
    }
  }
  return out;
}

bool same(const HttpRequest& a, const HttpRequest& b) {
  return a.method == b.method && a.target == b.target && a.version == b.version && a.keep_alive == b.keep_alive &&
         a.authorization == b.authorization && a.content_type == b.content_type && a.body == b.body;
}

// A request that is not whole may be refused at once or waited for: that is a matter of when.
void require_same(const Conversation& a, const Conversation& b) {
  fuzz_require(a.refused == b.refused || (!a.refused && a.unfinished) || (!b.refused && b.unfinished),
               "the same refusal however it is cut");
  fuzz_require(a.requests.size() == b.requests.size(), "as many requests however it is cut");
  for (std::size_t i = 0; i < a.requests.size(); ++i)
    fuzz_require(same(a.requests[i], b.requests[i]), "the same request");
}

// Lines of visible bytes, each ended by CR LF, an empty one at the end and nowhere else.
void check_head(const std::string& head) {
  fuzz_require(head.starts_with("HTTP/1.1 ") && head.ends_with("\r\n\r\n"), "a head from its status to its end");
  fuzz_require(head.find("\r\n\r\n") == head.size() - 4, "one end");
  for (std::size_t i = 0; i < head.size(); ++i) {
    const auto c = static_cast<unsigned char>(head[i]);
    const bool ends_line = c == '\r' ? i + 1 < head.size() && head[i + 1] == '\n' : c == '\n' && head[i - 1] == '\r';
    fuzz_require(ends_line || c >= 0x20, "no control byte in a field");
  }
}

void check_response(const HttpRouter& router, const HttpRequest& request, HttpResponse response) {
  router.add_headers(request, response);
  fuzz_require(response.status >= 200 && response.status < 600, "a final status");
  fuzz_require(response.status < 500 || response.status == 503, "no fault of ours");
  check_head(response_head(response, BodyFraming::kLength, request.version, request.keep_alive));
}

void answer(const HttpRouter& router, const HttpRequest& request) {
  auto admitted = router.admit(request);
  if (auto* refusal = std::get_if<HttpResponse>(&admitted)) return check_response(router, request, std::move(*refusal));
  auto started = router.start(request, std::move(std::get<HttpRouter::Admitted>(admitted)), {});
  auto* response = std::get_if<HttpResponse>(&started);
  fuzz_require(response != nullptr, "without a model no call begins");
  check_response(router, request, std::move(*response));
}

}  // namespace
}  // namespace folio

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace folio;
  static const HttpOptions kOptions = options();
  static const HttpRouter router(kOptions);
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Conversation whole = converse(bytes, kOptions.limits, [size] { return size; });
  require_same(whole, converse(bytes, kOptions.limits, [] { return std::size_t{1}; }));
  unsigned state = data[0];
  require_same(whole, converse(bytes, kOptions.limits, [&state] {
                 state = state * 1103515245U + 12345U;
                 return std::size_t{1} + (state >> 16U) % 40;
               }));
  for (const HttpRequest& request : whole.requests) answer(router, request);
  return 0;
}
