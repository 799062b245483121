// One gRPC server object on one address: binding, the transport's limits, health, shutdown.
//
// Each listener carries grpc.health.v1.Health (for "" and its services, NOT_SERVING until set_serving) and server
// reflection.
#pragma once
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"

namespace folio {

struct NamedService {
  grpc::Service* service;
  const char* name;  // "package.Service": what health answers for
};

class GrpcListener {
 public:
  static constexpr int kMaxRequestBytes = 16 << 20;

  // Binds and starts to answer; `services` outlive the listener. Throws std::runtime_error naming `address`
  // ("host:port", port 0: any free one) and the system's reason. A port that another process listens on is never
  // shared.
  GrpcListener(const std::string& address, const std::vector<NamedService>& services);
  ~GrpcListener();  // shutdown, at once
  GrpcListener(const GrpcListener&) = delete;
  GrpcListener& operator=(const GrpcListener&) = delete;

  int port() const { return port_; }
  void set_serving(bool serving);
  // Refuses new calls, waits for those that run until the deadline, cancels the others. Blocks. Once.
  void shutdown(TimePoint deadline);

 private:
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::string> service_names_;
  int port_ = 0;
};

// Sends the libraries' own logs to folio's, and turns on health and reflection for listeners built later. Once, early.
void init_grpc();

}  // namespace folio
