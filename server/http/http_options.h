// What the HTTP listener is told at start: where, for whom, and the limits of its transport.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "server/caller.h"
#include "server/tls.h"

namespace folio {

// Each is checked before memory or work is spent on what is above it. The times are those of one connection.
struct HttpLimits {
  std::size_t max_header_bytes = 16U << 10;           // request line and fields together: 431
  std::size_t max_body_bytes = 16U << 20;             // as a gRPC message: 413
  std::size_t max_waiting_body_bytes = 256U << 20;    // of all bodies that are still arriving: 503
  std::size_t max_connections = 4096;                 // of the others the longest idle one goes, else 503
  std::chrono::milliseconds header_timeout{10'000};   // first byte -> end of the header, and the TLS handshake: 408
  std::chrono::milliseconds body_timeout{30'000};     // plus a second for each 32 KiB that came: 408
  std::chrono::milliseconds idle_timeout{75'000};     // between two requests: closed
  std::chrono::milliseconds write_timeout{60'000};    // a reader that takes nothing for so long: closed
  std::chrono::milliseconds silence_timeout{20'000};  // no sign of the peer's kernel for so long: closed
};

struct HttpOptions {
  std::string host = "127.0.0.1";  // an IPv6 address in brackets
  std::uint16_t port = 0;          // 0: any free one
  std::string cors_allow_origin;   // one origin, or "*"; empty: browsers let no other site's page read answers
  std::optional<TlsFiles> tls;     // none: in the clear
  HttpLimits limits;
  // Who calls, by the values of all Authorization fields. HTTP thread. Not set: nobody needs a key.
  std::function<Result<Caller>(const std::vector<std::string_view>& authorization)> authorize;
  // Told of each call that ended because its reader took nothing. HTTP thread.
  std::function<void()> on_write_timeout;
};

}  // namespace folio
