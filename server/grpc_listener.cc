#include "server/grpc_listener.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <chrono>
#include <stdexcept>

#include "base/log.h"

namespace folio {
namespace {

// A peer that says nothing is asked every 10 s and given up 10 s later; a client may ask us as often as every 5 s, with
// or without calls.
constexpr int kKeepaliveMs = 10'000;
constexpr int kMinPingIntervalMs = 5'000;
// One that does not begin to speak (TLS, then HTTP/2) has this long; the library's own limit is two minutes.
constexpr int kHandshakeMs = 10'000;

void set_transport_options(grpc::ServerBuilder& builder, const ListenerOptions& options) {
  builder.SetMaxReceiveMessageSize(GrpcListener::kMaxRequestBytes);
  // The library looks at a message's size when all of it is there, however large a peer makes it: this ends its call.
  grpc::ResourceQuota arriving("arriving messages");
  arriving.Resize(GrpcListener::kMaxArrivingBytes);
  builder.SetResourceQuota(arriving);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, GrpcListener::kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, GrpcListener::kMaxStreamsPerConnection);
  // The library inflates a message before it looks at its size: a small one could take gigabytes.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // an idle stream is asked for ever
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kMinPingIntervalMs);
  if (!options.max_connection_age) return;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, static_cast<int>(options.max_connection_age->count()));
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS,
                             static_cast<int>(options.max_connection_age_grace.count()));
}

std::shared_ptr<grpc::ServerCredentials> credentials(const TlsFiles* tls) {
  if (tls == nullptr) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(tls->client_ca.empty()
                                                ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = tls->client_ca;
  options.pem_key_cert_pairs.push_back({tls->key, tls->certificate});
  return grpc::SslServerCredentials(options);
}

// What a peer sends makes the libraries talk: as much as it likes, if nobody counted. (Never destroyed: a thread of the
// library's may outlive main.)
log::Limited& library_log(log::Level level) {
  static auto* const warnings = new log::Limited(log::Level::kWarn);
  static auto* const details = new log::Limited(log::Level::kDebug);
  return level == log::Level::kWarn ? *warnings : *details;
}

void log_grpc(gpr_log_func_args* record) {
  // What the library calls an error is a peer's doing or comes back as a status too.
  const bool is_warning = record->severity == GPR_LOG_SEVERITY_ERROR;
  library_log(is_warning ? log::Level::kWarn : log::Level::kDebug).write(std::string("grpc: ") + record->message);
}

// Bytes that are not UTF-8 and the like: the caller is told by a status.
void log_protobuf(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  library_log(log::Level::kDebug).write("protobuf: " + message);
}

}  // namespace

void init_grpc() {
  gpr_set_log_function(log_grpc);
  google::protobuf::SetLogHandler(log_protobuf);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

GrpcListener::GrpcListener(const std::string& address, const std::vector<NamedService>& services,
                           const ListenerOptions& options)
    : acceptor_(address, kKeepaliveMs, options.num_spare_files) {
  grpc::ServerBuilder builder;
  set_transport_options(builder, options);
  newcomers_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials(options.tls));
  for (const NamedService& service : services) {
    builder.RegisterService(service.service);
    service_names_.emplace_back(service.name);
  }
  server_ = builder.BuildAndStart();
  if (!server_) throw std::runtime_error("cannot listen on " + address + ": the certificate or key is not taken");
  set_serving(false);
  acceptor_.start([this](int listening_fd, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listening_fd;
    connection.fd = fd;
    newcomers_->HandleNewConnection(&connection);
  });
}

GrpcListener::~GrpcListener() {
  shutdown(std::chrono::steady_clock::now());
}

void GrpcListener::set_serving(bool serving) {
  grpc::HealthCheckServiceInterface& health = *server_->GetHealthCheckService();
  for (const std::string& name : service_names_) health.SetServingStatus(name, serving);
  health.SetServingStatus("", serving);
}

void GrpcListener::shutdown(TimePoint deadline) {
  if (!server_) return;
  acceptor_.stop();
  const auto left = deadline - std::chrono::steady_clock::now();
  server_->Shutdown(std::chrono::system_clock::now() + left);
  server_->Wait();
  server_.reset();
}

}  // namespace folio
