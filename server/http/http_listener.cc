#include "server/http/http_listener.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/log.h"
#include "base/open_files.h"
#include "base/thread_name.h"
#include "server/http/connection.h"
#include "server/http/http_router.h"
#include "server/http/transport.h"

namespace folio {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kMaxRefused = 64;  // connections that are being told that there are too many
constexpr auto kAcceptPause = std::chrono::milliseconds(100);  // after an accept for which there was no file
constexpr auto kLastMoment = std::chrono::seconds(2);          // for coroutines to end after their sockets were closed

std::string address_of(const HttpOptions& options) {
  return options.host + ":" + std::to_string(options.port);
}

tcp::acceptor bind_to(asio::io_context& io, const HttpOptions& options) {
  try {
    std::string host = options.host;
    if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    const auto found = tcp::resolver(io).resolve(host, std::to_string(options.port), tcp::resolver::passive);
    const tcp::endpoint endpoint = *found.begin();
    tcp::acceptor acceptor(io, endpoint.protocol());
    // Connections of an earlier process that linger in the system do not keep the port; one that listens does.
    acceptor.set_option(tcp::acceptor::reuse_address(true));
    acceptor.bind(endpoint);
    acceptor.listen();
    return acceptor;
  } catch (const boost::system::system_error& failure) {
    throw std::runtime_error("cannot listen on " + address_of(options) + ": " + failure.code().message());
  }
}

// The texts were checked when they were read (server/tls.h): what is wrong here is between them and OpenSSL.
std::optional<asio::ssl::context> make_tls(const std::optional<TlsFiles>& tls) {
  if (!tls) return std::nullopt;
  using asio::ssl::context;
  context out(context::tls_server);
  out.set_options(context::default_workarounds | context::no_sslv2 | context::no_sslv3 | context::no_tlsv1 |
                  context::no_tlsv1_1);
  out.use_certificate_chain(asio::buffer(tls->certificate));
  out.use_private_key(asio::buffer(tls->key), context::pem);
  if (!tls->client_ca.empty()) {
    out.add_certificate_authority(asio::buffer(tls->client_ca));
    out.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
  }
  return out;
}

// How often what nobody waits for is looked at.
std::chrono::milliseconds check_interval(const HttpLimits& limits) {
  const auto shortest = std::min(limits.write_timeout, limits.silence_timeout);
  return std::clamp(shortest / 4, std::chrono::milliseconds(10), std::chrono::milliseconds(1000));
}

}  // namespace

class HttpListener::Impl final : public ConnectionHost {
 public:
  explicit Impl(HttpOptions given)
      : ConnectionHost(options_, router_),
        options_(std::move(given)),
        router_(options_),
        max_connections_(std::min(options_.limits.max_connections, max_connection_files())),
        check_interval_(check_interval(options_.limits)),
        tls_(make_tls(options_.tls)),
        acceptor_(bind_to(io_, options_)),
        port_(acceptor_.local_endpoint().port()),
        work_(asio::make_work_guard(io_)),
        accept_pause_(io_),
        check_timer_(io_) {
    asio::co_spawn(
        io_, [this] { return accept(); }, asio::detached);
    thread_ = std::thread([this] { work(); });
  }
  ~Impl() override { shutdown(std::chrono::steady_clock::now()); }

  int port() const { return port_; }
  HttpRouter& own_router() { return router_; }

  void shutdown(TimePoint deadline) {
    if (!thread_.joinable()) return;
    asio::post(io_, [this] { end_idle(); });
    std::unique_lock lock(mutex_);
    const auto none_left = [this] { return closed_ && num_connections_ == 0; };
    if (!none_left_.wait_until(lock, deadline, none_left)) {
      asio::post(io_, [this] { close_all(); });
      none_left_.wait_for(lock, kLastMoment, none_left);
    }
    lock.unlock();
    work_.reset();
    asio::post(io_, [this] { check_timer_.cancel(); });
    if (num_left() > 0) io_.stop();
    thread_.join();
  }

 private:
  void idle(Connection& connection, bool is_idle) override {
    if (is_idle) {
      idle_places_[&connection] = idle_.insert(idle_.end(), &connection);
    } else if (const auto place = idle_places_.find(&connection); place != idle_places_.end()) {
      idle_.erase(place->second);
      idle_places_.erase(place);
    }
  }
  void ended(Connection& connection) override {
    idle(connection, false);
    refused_.erase(&connection);
    connections_.erase(connection.shared_from_this());
    count();
  }

  void work() {
    name_thread("folio-http");
    io_.run();
  }
  void count() {
    const std::lock_guard lock(mutex_);
    num_connections_ = connections_.size();
    closed_ = closing;
    none_left_.notify_all();
  }
  std::size_t num_left() {
    const std::lock_guard lock(mutex_);
    return num_connections_;
  }

  asio::awaitable<void> accept();
  asio::awaitable<void> check_all();
  void take(tcp::socket socket);
  bool make_room();
  void end_idle();
  void close_all();

  HttpOptions options_;
  HttpRouter router_;
  const std::size_t max_connections_;
  const std::chrono::milliseconds check_interval_;
  std::optional<asio::ssl::context> tls_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  const int port_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  log::Limited warnings_{log::Level::kWarn};
  asio::steady_timer accept_pause_;
  asio::steady_timer check_timer_;
  bool checks_ = false;  // check_all runs: while there is a connection
  std::set<std::shared_ptr<Connection>> connections_;
  std::set<Connection*> refused_;  // of connections_: those that are told to go
  std::list<Connection*> idle_;    // the longest idle one first
  std::unordered_map<Connection*, std::list<Connection*>::iterator> idle_places_;

  std::mutex mutex_;
  std::condition_variable none_left_;
  std::size_t num_connections_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

asio::awaitable<void> HttpListener::Impl::accept() {
  while (acceptor_.is_open()) {
    error_code failure;
    tcp::socket socket = co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, failure));
    if (!failure) {
      take(std::move(socket));
      continue;
    }
    if (!acceptor_.is_open()) break;
    // No file for it, most likely. It waits in the system's queue; trying again at once would only spin.
    warnings_.write("http: a connection could not be taken: " + failure.message());
    make_room();
    accept_pause_.expires_after(kAcceptPause);
    co_await accept_pause_.async_wait(asio::redirect_error(asio::use_awaitable, failure));
  }
}

// Of those that wait for nothing the one that does so longest goes. False: there is none.
bool HttpListener::Impl::make_room() {
  if (idle_.empty()) return false;
  Connection& oldest = *idle_.front();
  idle(oldest, false);
  oldest.close();
  return true;
}

void HttpListener::Impl::take(tcp::socket socket) {
  if (closing) return;
  const bool refused = connections_.size() - refused_.size() >= max_connections_ && !make_room();
  if (refused && refused_.size() >= kMaxRefused) return;
  const auto silence = options_.limits.silence_timeout;
  auto transport =
      tls_ ? make_tls_transport(std::move(socket), silence, *tls_) : make_plain_transport(std::move(socket), silence);
  const auto connection = std::make_shared<Connection>(io_.get_executor(), std::move(transport), *this, refused);
  connections_.insert(connection);
  if (refused) refused_.insert(connection.get());
  count();
  connection->start();
  if (!std::exchange(checks_, true))
    asio::co_spawn(
        io_, [this] { return check_all(); }, asio::detached);
}

asio::awaitable<void> HttpListener::Impl::check_all() {
  while (!connections_.empty()) {
    error_code ignored;
    check_timer_.expires_after(check_interval_);
    co_await check_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
    const TimePoint now = std::chrono::steady_clock::now();
    for (const auto& connection : connections_) connection->check(now);
  }
  checks_ = false;
}

void HttpListener::Impl::end_idle() {
  closing = true;
  error_code ignored;
  acceptor_.close(ignored);
  accept_pause_.cancel();
  for (const auto& connection : connections_) connection->end_if_idle();
  count();
}

void HttpListener::Impl::close_all() {
  for (const auto& connection : connections_) connection->close();
}

HttpListener::HttpListener(HttpOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
HttpListener::~HttpListener() = default;

int HttpListener::port() const {
  return impl_->port();
}

void HttpListener::serve(Generation& generation, std::function<std::string()> metrics) {
  impl_->own_router().serve(generation, std::move(metrics));
}

void HttpListener::set_serving(bool serving) {
  impl_->own_router().set_ready(serving);
}

void HttpListener::shutdown(TimePoint deadline) {
  impl_->shutdown(deadline);
}

}  // namespace folio
