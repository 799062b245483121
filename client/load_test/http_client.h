// HTTP/1.1 from the asking side, on one thread: connections that are kept and used again, and exchanges of one request
// and one response on them. A connection carries one exchange at a time, so there are as many as exchanges run at once.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "client/common.h"
#include "client/load_test/http_response_reader.h"
#include "client/load_test/openai_wire.h"
#include "client/load_test/transport.h"

namespace folio::client {

// The bytes of one connection, in the clear or through TLS. One read and one write at a time.
class HttpStream {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using Endpoints = boost::asio::ip::tcp::resolver::results_type;
  using ErrorCode = boost::system::error_code;

  // `tls`: nullptr in the clear; outlives the stream. `host`: whom the certificate must name.
  HttpStream(boost::asio::io_context& io, boost::asio::ssl::context* tls, std::string host);

  boost::asio::awaitable<void> connect(const Endpoints& endpoints, ErrorCode& error);
  boost::asio::awaitable<std::size_t> read_some(boost::asio::mutable_buffer into, ErrorCode& error);
  boost::asio::awaitable<void> write(std::string_view bytes, ErrorCode& error);
  void close();  // at once; what is under way ends in an error
  bool is_open() const { return socket_.is_open(); }
  // Between two exchanges: the peer has not ended it meanwhile.
  bool is_usable();

 private:
  Socket socket_;
  const std::string host_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
  bool was_read_ = false;
  bool was_closed_ = false;  // by close()
};

// How an exchange ended.
struct HttpEnd {
  std::string error;  // empty: the response is whole; else "connection", "bad answer", or what abort() was given
  std::string message;
  HttpHead head;
};

// What all exchanges share. But for the constructor, on the thread of `io` only.
class HttpClient {
 public:
  // Finds the host and reads the TLS files: throws std::runtime_error naming what is wrong. `io` outlives this object.
  HttpClient(boost::asio::io_context& io, const Connection& connection);

  const HttpAddress& address() const { return address_; }
  // A request to this server, with its key. Any thread.
  std::string request(std::string_view path, std::string_view body) const;
  // Connects until `count` connections are idle. A failure ends it, and shows when a connection is wanted.
  boost::asio::awaitable<void> open(int count);

 private:
  friend class HttpExchange;
  std::unique_ptr<HttpStream> take();  // one that is connected and usable; else nullptr
  std::unique_ptr<HttpStream> make();
  void keep(std::unique_ptr<HttpStream> stream) { idle_.push_back(std::move(stream)); }

  boost::asio::io_context& io_;
  const HttpAddress address_;
  const std::string api_key_;
  std::optional<boost::asio::ssl::context> tls_;
  HttpStream::Endpoints endpoints_;
  std::vector<std::unique_ptr<HttpStream>> idle_;  // the last used first
};

class HttpExchange {
 public:
  explicit HttpExchange(HttpClient& client) : client_(client) {}

  // A part of the response's body (possibly empty), with the moment at which its bytes were read.
  using OnBody = std::function<void(const HttpHead& head, std::string_view bytes, SteadyTime at)>;
  // Once. This object and the arguments live until it is over.
  boost::asio::awaitable<HttpEnd> run(const std::string& request, const OnBody& on_body);
  // Ends it from outside, or from within `on_body`, with this error.
  void abort(std::string error, std::string message);

 private:
  boost::asio::awaitable<bool> connect();
  boost::asio::awaitable<void> read(HttpResponseReader& reader, const OnBody& on_body);
  void fail(std::string error, std::string message);

  HttpClient& client_;
  std::unique_ptr<HttpStream> stream_;
  HttpStream::ErrorCode write_error_;
  HttpEnd end_;
};

}  // namespace folio::client
