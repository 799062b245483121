#include "client/failure.h"

#include <cstdio>
#include <string_view>

#include "client/text.h"

namespace folio::client {
namespace {

using grpc::StatusCode;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// UNAVAILABLE is what gRPC itself says when there is no connection, and what a server says that is loading or draining.
// gRPC's own words begin so (1.51).
bool never_connected(const grpc::Status& status) {
  const std::string& words = status.error_message();
  return status.error_code() == StatusCode::UNAVAILABLE &&
         (contains(words, "failed to connect to all addresses") || contains(words, "DNS resolution failed"));
}

std::string how_to_start(const Connection& connection, Listener listener) {
  return std::string("start one with: folio-server --model FILE.gguf    (its ") +
         (listener == Listener::kGeneration ? "--grpc-port is 50051" : "--control-listen is 127.0.0.1:50052") +
         ")\nanother address: " + connection.address_flag + " HOST:PORT";
}

std::string explain_no_connection(const std::string& words, const Connection& connection, Listener listener) {
  if (contains(words, "http1.x server")) {
    return connection.address + " speaks HTTP, not gRPC: it may be the server's --http-port; this command wants its " +
           (listener == Listener::kGeneration ? "--grpc-port (50051)" : "--control-listen (127.0.0.1:50052)");
  }
  if (contains(words, "Connection refused"))
    return "no server at " + connection.address + "\n" + how_to_start(connection, listener);
  if (contains(words, "DNS resolution failed")) {
    return "no server at " + connection.address + ": no such host\n" + how_to_start(connection, listener);
  }
  const std::string tls = connection.tls_ca.empty()
                              ? "it may speak TLS (--tls-ca FILE), or be no gRPC server"
                              : "it may speak no TLS, show another certificate, or want ours (--tls-cert, --tls-key)";
  return "no connection to " + connection.address + ": " + tls + "\n" + words;
}

bool is_refusal(StatusCode code) {
  switch (code) {
    case StatusCode::INVALID_ARGUMENT:
    case StatusCode::NOT_FOUND:
    case StatusCode::PERMISSION_DENIED:
    case StatusCode::UNAUTHENTICATED:
    case StatusCode::RESOURCE_EXHAUSTED:
    case StatusCode::FAILED_PRECONDITION:
      return true;
    default:
      return false;
  }
}

}  // namespace

Failure explain(const grpc::Status& status, const Connection& connection, Listener listener) {
  const StatusCode code = status.error_code();
  const std::string named = std::string(code_name(code)) + ": " + printable(repaired(status.error_message()));
  if (never_connected(status)) {
    return {kExitNoServer, explain_no_connection(status.error_message(), connection, listener)};
  }
  if (code == StatusCode::UNAVAILABLE) return {kExitNoServer, named};
  if (code == StatusCode::UNIMPLEMENTED) {
    const std::string other =
        listener == Listener::kGeneration
            ? "it may be the server's --control-listen; this command wants its --grpc-port (50051)"
            : "it may be the server's --grpc-port; this command wants its --control-listen "
              "(127.0.0.1:50052)";
    return {kExitNoServer, connection.address + " does not know this call: " + other};
  }
  return {is_refusal(code) ? kExitRefused : kExitFailed, named};
}

int report(const grpc::Status& status, const Connection& connection, Listener listener) {
  const Failure failure = explain(status, connection, listener);
  std::fprintf(stderr, "folio-client: %s\n", failure.text.c_str());
  return failure.exit_code;
}

}  // namespace folio::client
