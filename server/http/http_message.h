// A request as it came and a response as it goes: plain values, no library in here.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace folio {

struct HttpRequest {
  std::string method;
  std::string target;  // from the path on, as it was sent
  int version = 11;    // 10 or 11
  bool keep_alive = false;
  bool expects_continue = false;
  std::vector<std::string> authorization;  // one a field
  std::string content_type;
  std::string content_encoding;
  std::string origin;
  std::string request_id;     // X-Request-Id, if it may stand in a log and a header; else empty
  bool is_preflight = false;  // OPTIONS with Access-Control-Request-Method
  std::string body;

  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct HttpResponse {
  int status = 200;
  std::string content_type;
  std::vector<std::pair<std::string, std::string>> headers;  // more of them, made by us
  std::string body;
  bool close = false;  // the connection ends after it
};

// How the end of a response's body is told.
enum class BodyFraming { kLength, kChunked, kClose };

// Status line and header fields, up to the empty line. `version`: the request's.
std::string response_head(const HttpResponse& response, BodyFraming framing, int version, bool keep_alive);
// `bytes` (at least one) as a chunk.
std::string chunk_of(std::string_view bytes);
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

const char* reason_phrase(int status);

}  // namespace folio
