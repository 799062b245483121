#include "server/http/http_message.h"

#include <array>
#include <charconv>
#include <ctime>

namespace folio {
namespace {

struct Reason {
  int status;
  const char* phrase;
};
constexpr std::array<Reason, 18> kReasons = {{{200, "OK"},
                                              {204, "No Content"},
                                              {400, "Bad Request"},
                                              {401, "Unauthorized"},
                                              {403, "Forbidden"},
                                              {404, "Not Found"},
                                              {405, "Method Not Allowed"},
                                              {408, "Request Timeout"},
                                              {413, "Content Too Large"},
                                              {415, "Unsupported Media Type"},
                                              {417, "Expectation Failed"},
                                              {429, "Too Many Requests"},
                                              {431, "Request Header Fields Too Large"},
                                              {499, "Client Closed Request"},
                                              {500, "Internal Server Error"},
                                              {501, "Not Implemented"},
                                              {503, "Service Unavailable"},
                                              {504, "Gateway Timeout"}}};

// RFC 9110's form of a date. Made once a second.
const std::string& date_now() {
  thread_local std::time_t made_at = 0;
  thread_local std::string text;
  const std::time_t now = std::time(nullptr);
  if (now != made_at || text.empty()) {
    std::tm parts{};
    gmtime_r(&now, &parts);
    char buffer[64];
    const std::size_t length = std::strftime(buffer, sizeof buffer, "%a, %d %b %Y %H:%M:%S GMT", &parts);
    text.assign(buffer, length);
    made_at = now;
  }
  return text;
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ").append(value).append("\r\n");
}

}  // namespace

const char* reason_phrase(int status) {
  for (const Reason& reason : kReasons) {
    if (reason.status == status) return reason.phrase;
  }
  return "Unknown";
}

std::string response_head(const HttpResponse& response, BodyFraming framing, int version, bool keep_alive) {
  std::string out = "HTTP/1.1 " + std::to_string(response.status) + " " + reason_phrase(response.status) + "\r\n";
  append_field(out, "Date", date_now());
  append_field(out, "Server", "folio");
  if (!response.content_type.empty()) append_field(out, "Content-Type", response.content_type);
  // A 204 has no body, and so no length.
  if (framing == BodyFraming::kLength && response.status != 204) {
    append_field(out, "Content-Length", std::to_string(response.body.size()));
  }
  if (framing == BodyFraming::kChunked) append_field(out, "Transfer-Encoding", "chunked");
  for (const auto& [name, value] : response.headers) append_field(out, name, value);
  if (!keep_alive) {
    append_field(out, "Connection", "close");
  } else if (version == 10) {
    append_field(out, "Connection", "keep-alive");
  }
  return out += "\r\n";
}

std::string chunk_of(std::string_view bytes) {
  char size[16];
  const auto [end, failure] = std::to_chars(size, size + sizeof size, bytes.size(), 16);
  std::string out(size, end);
  out.reserve(out.size() + bytes.size() + 4);
  return out.append("\r\n").append(bytes).append("\r\n");
}

}  // namespace folio
