// One gRPC server object on one address: binding, the transport's limits, health, shutdown.
//
// Each listener carries grpc.health.v1.Health (for "" and its services, NOT_SERVING until set_serving) and server
// reflection.
#pragma once
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/open_files.h"
#include "server/acceptor.h"
#include "server/tls.h"

namespace folio {

struct NamedService {
  grpc::Service* service;
  const char* name;  // "package.Service": what health answers for
};

struct ListenerOptions {
  const TlsFiles* tls = nullptr;  // none: in the clear. Read by the constructor alone
  // After this time a connection's client is asked to open a new one, and this long later what still runs on the old
  // one ends. Not set: connections live as long as their clients want.
  std::optional<std::chrono::milliseconds> max_connection_age;
  std::chrono::milliseconds max_connection_age_grace{0};
  std::size_t num_spare_files =
      kSpareFiles;  // of those that the process may open: not for connections of this listener
};

class GrpcListener {
 public:
  static constexpr int kMaxRequestBytes = 16 << 20;
  // Of all messages that are arriving, together.
  static constexpr std::size_t kMaxArrivingBytes = std::size_t{256} << 20;
  static constexpr int kMaxMetadataBytes = 8 << 10;
  static constexpr int kMaxStreamsPerConnection = 2048;  // calls at once; a client keeps the others until there is room

  // Binds and starts to answer; `services` outlive the listener. Throws std::runtime_error naming `address`
  // ("host:port", port 0: any free one) and the system's reason. A port that another process listens on is never
  // shared.
  GrpcListener(const std::string& address, const std::vector<NamedService>& services,
               const ListenerOptions& options = {});
  ~GrpcListener();  // shutdown, at once
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  int port() const { return acceptor_.port(); }
  void set_serving(bool serving);
  // Refuses new calls, waits for those that run until the deadline, cancels the others. Blocks. Once.
  void shutdown(TimePoint deadline);

 private:
  Acceptor acceptor_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> newcomers_;  // where the server takes connections
  std::vector<std::string> service_names_;
};

// Sends the libraries' own logs to folio's, and turns on health and reflection for listeners built later. Once, early.
void init_grpc();

}  // namespace folio
