#include "client/load_test/http_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/ssl/host_name_verification.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "base/open_files.h"
#include "client/api_key.h"

namespace folio::client {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::redirect_error;
using asio::use_awaitable;
using ErrorCode = HttpStream::ErrorCode;

asio::ssl::context make_tls(const Connection& connection) {
  asio::ssl::context context(asio::ssl::context::tls_client);
  ErrorCode error;
  const auto check = [&error](const std::string& flag, const std::string& path) {
    if (error) throw std::runtime_error(flag + " " + path + ": " + error.message());
  };
  context.set_verify_mode(asio::ssl::verify_peer);
  if (connection.tls_ca.empty()) {
    context.set_default_verify_paths(error);
  } else {
    context.load_verify_file(connection.tls_ca, error);
  }
  check("--tls-ca", connection.tls_ca);
  if (connection.tls_cert.empty()) return context;
  context.use_certificate_chain_file(connection.tls_cert, error);
  check("--tls-cert", connection.tls_cert);
  context.use_private_key_file(connection.tls_key, asio::ssl::context::pem, error);
  check("--tls-key", connection.tls_key);
  return context;
}

bool is_address(const std::string& host) {
  ErrorCode error;
  asio::ip::make_address(host, error);
  return !error;
}

std::string connect_failure(const ErrorCode& error) {
  if (error != asio::error::no_descriptors) return error.message();
  return "too many open files: each stream takes one, and ulimit -n allows " + std::to_string(max_connection_files(0));
}

}  // namespace

HttpStream::HttpStream(asio::io_context& io, asio::ssl::context* tls, std::string host)
    : socket_(io), host_(std::move(host)) {
  if (tls == nullptr) return;
  tls_.emplace(socket_, *tls);
  tls_->set_verify_callback(asio::ssl::host_name_verification(host_));
  // A server with several names chooses its certificate by it; an address is none.
  if (!is_address(host_)) SSL_set_tlsext_host_name(tls_->native_handle(), host_.c_str());
}

awaitable<void> HttpStream::connect(const Endpoints& endpoints, ErrorCode& error) {
  error = asio::error::host_not_found;
  for (const auto& entry : endpoints) {
    // By hand, since asio::async_connect calls a socket that cannot be opened (too many files) a cancelled operation.
    socket_.close(error);
    socket_.open(entry.endpoint().protocol(), error);
    if (!error) co_await socket_.async_connect(entry.endpoint(), redirect_error(use_awaitable, error));
    if (!error || was_closed_) break;
  }
  if (error) co_return;
  ErrorCode ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  if (tls_) co_await tls_->async_handshake(asio::ssl::stream_base::client, redirect_error(use_awaitable, error));
}

awaitable<std::size_t> HttpStream::read_some(asio::mutable_buffer into, ErrorCode& error) {
  std::size_t count = 0;
  was_read_ = true;
  if (tls_) {
    count = co_await tls_->async_read_some(into, redirect_error(use_awaitable, error));
    // Many servers end the connection without TLS's own goodbye: whether anything is missing, HTTP knows.
    if (error == asio::ssl::error::stream_truncated) error = asio::error::eof;
  } else {
    count = co_await socket_.async_read_some(into, redirect_error(use_awaitable, error));
  }
  co_return count;
}

awaitable<void> HttpStream::write(std::string_view bytes, ErrorCode& error) {
  const auto buffer = asio::buffer(bytes.data(), bytes.size());
  if (tls_) {
    co_await asio::async_write(*tls_, buffer, redirect_error(use_awaitable, error));
  } else {
    co_await asio::async_write(socket_, buffer, redirect_error(use_awaitable, error));
  }
}

void HttpStream::close() {
  was_closed_ = true;
  ErrorCode ignored;
  socket_.close(ignored);
}

bool HttpStream::is_usable() {
  // The peer has closed it, whatever TLS has to say before that.
  pollfd closed{socket_.native_handle(), POLLRDHUP, 0};
  if (poll(&closed, 1, 0) != 0) return false;
  char byte = 0;
  const ssize_t count = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
  // Nothing was asked for, so nothing may come, but for what TLS itself says at first (session tickets). Later it is an
  // alert: the peer is about to close.
  return count > 0 && tls_.has_value() && !was_read_;
}

HttpClient::HttpClient(asio::io_context& io, const Connection& connection)
    : io_(io),
      address_(parse_http_address(connection.address, !connection.tls_ca.empty())),
      api_key_(connection.api_key) {
  check_api_key(api_key_, /*ascii_only=*/false);
  if (address_.tls) tls_.emplace(make_tls(connection));
  ErrorCode error;
  asio::ip::tcp::resolver resolver(io_);
  endpoints_ = resolver.resolve(address_.host, address_.port, asio::ip::resolver_base::numeric_service, error);
  if (!error) return;
  throw CommandError("no server at " + connection.address + ": no such host (" + error.message() + ")\n" +
                         "another address: --address HOST:PORT",
                     kExitNoServer);
}

std::string HttpClient::request(std::string_view path, std::string_view body) const {
  return http_request(address_, api_key_, path, body);
}

std::unique_ptr<HttpStream> HttpClient::take() {
  while (!idle_.empty()) {
    auto stream = std::move(idle_.back());
    idle_.pop_back();
    if (stream->is_usable()) return stream;
  }
  return nullptr;
}

std::unique_ptr<HttpStream> HttpClient::make() {
  return std::make_unique<HttpStream>(io_, tls_ ? &*tls_ : nullptr, address_.host);
}

awaitable<void> HttpClient::open(int count) {
  while (static_cast<int>(idle_.size()) < count) {
    auto stream = make();
    ErrorCode error;
    co_await stream->connect(endpoints_, error);
    if (error) co_return;
    keep(std::move(stream));
  }
}

void HttpExchange::fail(std::string error, std::string message) {
  if (!end_.error.empty()) return;  // the first one tells why
  end_.error = std::move(error);
  end_.message = std::move(message);
}

void HttpExchange::abort(std::string error, std::string message) {
  fail(std::move(error), std::move(message));
  if (stream_) stream_->close();
}

// False: it failed.
awaitable<bool> HttpExchange::connect() {
  stream_ = client_.take();
  if (stream_) co_return true;
  stream_ = client_.make();
  ErrorCode error;
  co_await stream_->connect(client_.endpoints_, error);
  if (error) fail("connection", connect_failure(error));
  co_return end_.error.empty();
}

awaitable<HttpEnd> HttpExchange::run(const std::string& request, const OnBody& on_body) {
  HttpResponseReader reader;
  bool connected = false;
  if (end_.error.empty()) connected = co_await connect();
  if (connected) {
    // A server may refuse and close before it has read everything: its answer is worth more than the failed write.
    co_await stream_->write(request, write_error_);
    co_await read(reader, on_body);
  }
  end_.head = reader.head();
  if (end_.error.empty() && reader.keeps_connection()) client_.keep(std::move(stream_));
  stream_.reset();
  co_return std::move(end_);
}

awaitable<void> HttpExchange::read(HttpResponseReader& reader, const OnBody& on_body) {
  std::array<char, 16384> buffer;
  while (end_.error.empty() && !reader.is_done()) {
    ErrorCode error;
    const std::size_t count = co_await stream_->read_some(asio::buffer(buffer), error);
    const SteadyTime at = std::chrono::steady_clock::now();
    if (!end_.error.empty()) co_return;  // aborted
    if (error && error != asio::error::eof) co_return fail("connection", error.message());
    if (error) {
      reader.append_end();
      if (!reader.failure().empty()) {
        co_return fail("connection", write_error_ ? write_error_.message() : reader.failure());
      }
    } else {
      reader.append({buffer.data(), count});
    }
    if (reader.has_head()) on_body(reader.head(), reader.take_body(), at);
    if (!reader.failure().empty()) fail("bad answer", reader.failure());
  }
}

}  // namespace folio::client
