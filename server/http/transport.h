// The bytes of one connection, in the clear or through TLS. HTTP thread only; one read and one write at a time.
#pragma once
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>

namespace folio {

class Transport {
 public:
  using Socket = boost::asio::ip::tcp::socket;
  using ErrorCode = boost::system::error_code;

  virtual ~Transport() = default;
  virtual boost::asio::awaitable<void> handshake(ErrorCode& error) = 0;
  virtual boost::asio::awaitable<std::size_t> read_some(boost::asio::mutable_buffer into, ErrorCode& error) = 0;
  virtual boost::asio::awaitable<std::size_t> write_some(boost::asio::const_buffer from, ErrorCode& error) = 0;
  // Tells the peer that nothing follows; what it sends may still be read.
  virtual boost::asio::awaitable<void> end_writes() = 0;
  // A peer may end its sending side and still read: the end of its bytes alone does not say that it is gone.
  virtual bool may_half_close() const = 0;

  // After the peer's last byte: until the connection is broken.
  boost::asio::awaitable<void> wait_broken();
  // At once; what is under way ends in an error.
  void close();
  // For how long the peer's system has left bytes of ours without any answer. Seen from call to call: call it often.
  std::chrono::milliseconds silence(std::chrono::steady_clock::time_point now);

 protected:
  virtual Socket& socket() = 0;

 private:
  std::optional<std::chrono::steady_clock::time_point> owed_since_;
};

// Sets the socket up for a conversation: no delay of small writes, keep-alive questions so that a peer that vanished is
// noticed in about `silence`.
std::unique_ptr<Transport> make_plain_transport(Transport::Socket socket, std::chrono::milliseconds silence);
std::unique_ptr<Transport> make_tls_transport(Transport::Socket socket, std::chrono::milliseconds silence,
                                              boost::asio::ssl::context& context);

}  // namespace folio
