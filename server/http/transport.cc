#include "server/http/transport.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <utility>

namespace folio {
namespace {

namespace asio = boost::asio;
using Socket = Transport::Socket;
using asio::redirect_error;
using asio::use_awaitable;

void set_option(Socket& socket, int level, int name, int value) {
  // A system that lacks one of these serves all the same.
  setsockopt(socket.native_handle(), level, name, &value, sizeof value);
}

// What the system takes of an answer that nobody reads: left to itself it goes to megabytes for each connection.
constexpr int kSendBufferBytes = 256 << 10;

void set_up(Socket& socket, std::chrono::milliseconds silence) {
  const int seconds = std::max(1, static_cast<int>(silence.count() / 1000));
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(socket, SOL_SOCKET, SO_SNDBUF, kSendBufferBytes);
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 4));
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 2);
}

class PlainTransport final : public Transport {
 public:
  explicit PlainTransport(Socket socket) : socket_(std::move(socket)) {}

  asio::awaitable<void> handshake(ErrorCode& /*error*/) override { co_return; }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer into, ErrorCode& error) override {
    return socket_.async_read_some(into, redirect_error(use_awaitable, error));
  }
  asio::awaitable<std::size_t> write_some(asio::const_buffer from, ErrorCode& error) override {
    return socket_.async_write_some(from, redirect_error(use_awaitable, error));
  }
  asio::awaitable<void> end_writes() override {
    ErrorCode ignored;
    socket_.shutdown(Socket::shutdown_send, ignored);
    co_return;
  }
  bool may_half_close() const override { return true; }

 private:
  Socket& socket() override { return socket_; }
  Socket socket_;
};

class TlsTransport final : public Transport {
 public:
  TlsTransport(Socket socket, asio::ssl::context& context) : stream_(std::move(socket), context) {}

  asio::awaitable<void> handshake(ErrorCode& error) override {
    return stream_.async_handshake(asio::ssl::stream_base::server, redirect_error(use_awaitable, error));
  }
  asio::awaitable<std::size_t> read_some(asio::mutable_buffer into, ErrorCode& error) override {
    return stream_.async_read_some(into, redirect_error(use_awaitable, error));
  }
  asio::awaitable<std::size_t> write_some(asio::const_buffer from, ErrorCode& error) override {
    return stream_.async_write_some(from, redirect_error(use_awaitable, error));
  }
  asio::awaitable<void> end_writes() override {
    ErrorCode ignored;
    co_await stream_.async_shutdown(redirect_error(use_awaitable, ignored));
  }
  bool may_half_close() const override { return false; }

 private:
  Socket& socket() override { return stream_.next_layer(); }
  asio::ssl::stream<Socket> stream_;
};

}  // namespace

asio::awaitable<void> Transport::wait_broken() {
  ErrorCode ignored;
  co_await socket().async_wait(Socket::wait_error, redirect_error(use_awaitable, ignored));
}

void Transport::close() {
  ErrorCode ignored;
  socket().close(ignored);
}

// Keep-alive questions are asked of an idle peer only. While something of ours is not acknowledged the system asks
// again for a quarter of an hour; how long ago the peer's side answered anything tells a silent one from a slow one.
std::chrono::milliseconds Transport::silence(std::chrono::steady_clock::time_point now) {
  tcp_info info{};
  socklen_t size = sizeof info;
  const bool known = getsockopt(socket().native_handle(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
  if (!known || (info.tcpi_unacked == 0 && info.tcpi_probes == 0)) {
    owed_since_.reset();
    return {};
  }
  if (!owed_since_) owed_since_ = now;
  const auto owed = std::chrono::duration_cast<std::chrono::milliseconds>(now - *owed_since_);
  return std::min(owed, std::chrono::milliseconds(info.tcpi_last_ack_recv));
}

std::unique_ptr<Transport> make_plain_transport(Socket socket, std::chrono::milliseconds silence) {
  set_up(socket, silence);
  return std::make_unique<PlainTransport>(std::move(socket));
}

std::unique_ptr<Transport> make_tls_transport(Socket socket, std::chrono::milliseconds silence,
                                              asio::ssl::context& context) {
  set_up(socket, silence);
  return std::make_unique<TlsTransport>(std::move(socket), context);
}

}  // namespace folio
