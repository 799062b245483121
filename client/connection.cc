#include "client/connection.h"

#include <grpc/support/log.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "client/api_key.h"
#include "client/command_error.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr int kMaxResponseBytes = 256 << 20;

std::string read_file(const std::string& flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) text << file.rdbuf();
  if (!file || !text || text.view().empty()) throw std::runtime_error(flag + " " + path + ": cannot be read");
  return text.str();
}

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using PrivateKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio bio_of(const std::string& pem) {
  return {BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free};
}

// The text's first certificate. gRPC would only say that there is none when it connects, and not in which file.
Certificate first_certificate(const std::string& pem, const std::string& flag, const std::string& path) {
  Certificate found(PEM_read_bio_X509(bio_of(pem).get(), nullptr, nullptr, nullptr), X509_free);
  ERR_clear_error();
  if (!found) throw std::runtime_error(flag + " " + path + ": no PEM certificate in it");
  return found;
}

void check_private_key(const std::string& pem, const std::string& path, const Certificate& certificate) {
  // Nobody can be asked for a pass phrase here.
  const auto no_pass_phrase = [](char*, int, int, void*) { return -1; };
  const PrivateKey key(PEM_read_bio_PrivateKey(bio_of(pem).get(), nullptr, no_pass_phrase, nullptr), EVP_PKEY_free);
  const bool belongs = key && X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!key) throw std::runtime_error("--tls-key " + path + ": no PEM private key in it, or one with a pass phrase");
  if (!belongs) throw std::runtime_error("--tls-key " + path + ": is not the key of --tls-cert");
}

std::shared_ptr<grpc::ChannelCredentials> credentials(const Connection& connection) {
  if (connection.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = read_file("--tls-ca", connection.tls_ca);
  first_certificate(options.pem_root_certs, "--tls-ca", connection.tls_ca);
  if (!connection.tls_cert.empty()) {
    options.pem_cert_chain = read_file("--tls-cert", connection.tls_cert);
    options.pem_private_key = read_file("--tls-key", connection.tls_key);
    check_private_key(options.pem_private_key, connection.tls_key,
                      first_certificate(options.pem_cert_chain, "--tls-cert", connection.tls_cert));
  }
  return grpc::SslCredentials(options);
}

bool is_port(std::string_view port) {
  return !port.empty() && port.size() <= 5 &&
         std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         std::stoi(std::string(port)) >= 1 && std::stoi(std::string(port)) <= 65535;
}

// HOST:PORT; an IPv6 address is in brackets.
void check_address(const Connection& connection) {
  const std::string& address = connection.address;
  const auto refuse = [&](const std::string& why) {
    return UsageError(connection.address_flag + " '" + printable(repaired(address)) + "': " + why);
  };
  if (address.find("://") != std::string::npos) {
    throw refuse("must be HOST:PORT; a URL is one for bench --api openai alone");
  }
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) throw refuse("must be HOST:PORT");
  const std::string_view host = std::string_view(address).substr(0, colon);
  if (!is_port(std::string_view(address).substr(colon + 1))) {
    throw refuse("must be HOST:PORT with a port from 1 to 65535");
  }
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const auto is_odd = [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '/' || c == '%'; };
  if ((host.find(':') != std::string_view::npos && !in_brackets) || std::any_of(host.begin(), host.end(), is_odd)) {
    throw refuse("must be HOST:PORT, with an IPv6 address in brackets");
  }
}

}  // namespace

void Connection::add_to(CLI::App& app) {
  app.add_option("--address", address, "host:port of the server")->capture_default_str();
  add_security_to(app);
}

void Connection::add_security_to(CLI::App& app) {
  app.add_option("--api-key", api_key, "API key; better in the environment: a command line is seen by all")
      ->envname("FOLIO_API_KEY");
  auto* ca = app.add_option("--tls-ca", tls_ca, "speak TLS, with a server certified by these authorities (PEM file)");
  auto* cert = app.add_option("--tls-cert", tls_cert, "our own certificate (PEM file)")->needs(ca);
  auto* key = app.add_option("--tls-key", tls_key, "its private key (PEM file)")->needs(cert);
  cert->needs(key);
  for (CLI::Option* file : {ca, cert, key}) file->type_name("FILE");
}

void Connection::authorize(grpc::ClientContext& context) const {
  if (!api_key.empty()) context.AddMetadata("authorization", "Bearer " + api_key);
}

std::shared_ptr<grpc::Channel> make_channel(const Connection& connection, bool own) {
  check_address(connection);
  check_api_key(connection.api_key, /*ascii_only=*/true);
  grpc::ChannelArguments arguments;
  if (own) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  arguments.SetMaxReceiveMessageSize(kMaxResponseBytes);
  return grpc::CreateCustomChannel(connection.address, credentials(connection), arguments);
}

void silence_grpc() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_function([](gpr_log_func_args* line) {
    if (std::string_view(line->message).find("assertion failed") == std::string_view::npos) return;
    std::fprintf(stderr, "%s:%d: %s\n", line->file, line->line, line->message);
  });
}

}  // namespace folio::client
