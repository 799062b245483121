// How folio-client reaches a server: the address, the key shown at its door, TLS, and a gRPC channel.
#pragma once
#include <grpcpp/grpcpp.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

namespace folio::client {

inline constexpr const char* kDefaultAddress = "127.0.0.1:50051";
inline constexpr const char* kDefaultControlAddress = "127.0.0.1:50052";

// How to reach a server and what to show at its door.
struct Connection {
  std::string address = kDefaultAddress;
  std::string address_flag = "--address";  // that says it, for messages
  std::string api_key;                     // empty: none
  std::string tls_ca, tls_cert, tls_key;   // paths of PEM files; empty: in the clear, and no certificate of our own

  void add_to(CLI::App& app);           // --address and the others
  void add_security_to(CLI::App& app);  // all but --address
  // Goes with every call. REQUIRES a key that make_channel took.
  void authorize(grpc::ClientContext& context) const;
};

// A channel without hidden retries, with a receive limit that no answer reaches. Channels to the same server share a
// network connection unless they have their `own`. Throws UsageError for an address that is not HOST:PORT or such a
// key, and std::runtime_error for a file that cannot be read or holds no such thing; both name the flag.
std::shared_ptr<grpc::Channel> make_channel(const Connection& connection, bool own = false);

// gRPC's own lines on the error output go, since every failure is told in words of ours: but for a broken assertion's,
// and where GRPC_VERBOSITY asks for them.
void silence_grpc();

}  // namespace folio::client
