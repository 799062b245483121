// One connection: requests in, one after the other, answers out in the same order. Two coroutines on the HTTP thread:
// one reads all the time, so that a peer that goes away is noticed whatever is under way; the other does the rest.
//
// What is read ahead of its turn (a pipelined request) is bounded; what is made and not yet written waits in the call.
#pragma once
#include <array>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "server/http/http_call.h"
#include "server/http/http_message.h"
#include "server/http/http_options.h"
#include "server/http/http_router.h"
#include "server/http/request_parser.h"
#include "server/http/transport.h"

namespace folio {

class Connection;

// What the connections of a listener share. HTTP thread only; outlives them.
class ConnectionHost {
 public:
  ConnectionHost(const HttpOptions& its_options, const HttpRouter& its_router)
      : options(its_options), router(its_router) {}
  virtual ~ConnectionHost() = default;

  const HttpOptions& options;
  const HttpRouter& router;
  std::size_t num_body_bytes = 0;  // of bodies that are still arriving
  bool closing = false;            // no request begins any more

  virtual void idle(Connection& connection, bool is_idle) = 0;
  virtual void ended(Connection& connection) = 0;  // its last word: it may be forgotten
};

class Connection final : public ReplyPort, public std::enable_shared_from_this<Connection> {
 public:
  // `refused`: it is answered 503 whatever it asks, and closed.
  Connection(boost::asio::any_io_executor executor, std::unique_ptr<Transport> transport, ConnectionHost& host,
             bool refused);

  void start();
  void send(ReplyPart part) override;  // any thread
  void check(TimePoint now);           // every now and then: what no coroutine waits for
  void end_if_idle();
  void close();  // at once

 private:
  using AwaitVoid = boost::asio::awaitable<void>;
  using AwaitBool = boost::asio::awaitable<bool>;
  enum class Stage { kHead, kBody };

  AwaitVoid run();
  AwaitVoid serve();
  AwaitVoid read_all();
  AwaitVoid wait(TimePoint until);
  AwaitBool wait_for_request();
  bool has_request();
  void drop_empty_lines();
  AwaitBool serve_one();
  AwaitBool read(RequestParser& parser, Stage stage);
  AwaitBool respond(const HttpRequest& head, HttpResponse response, bool keep_alive);
  AwaitBool relay(const HttpRequest& head, bool keep_alive);
  AwaitBool relay_part(const HttpRequest& head, ReplyPart part, bool& keep_alive);
  AwaitBool next_part(const HttpRequest& head);
  AwaitBool write(std::string_view bytes);
  AwaitVoid linger();
  std::size_t feed(RequestParser& parser);
  void count_body(std::size_t num_bytes);
  void notify();
  void set_gone();

  ConnectionHost& host_;
  const std::unique_ptr<Transport> transport_;
  const boost::asio::any_io_executor executor_;
  const bool refused_;
  boost::asio::steady_timer changed_;       // cancelled when something changed that serve() may wait for
  boost::asio::steady_timer has_room_;      // the same for read_all()
  TimePoint write_deadline_ = kNoDeadline;  // of the handshake, too

  std::string inbox_;               // what came and was not used yet
  bool eof_ = false;                // the peer sends no more, but may read
  bool gone_ = false;               // nothing reaches the peer
  bool idle_ = false;               // between two requests
  bool discards_ = false;           // what comes is thrown away
  std::size_t num_body_bytes_ = 0;  // what this one added to the host's

  std::shared_ptr<HttpCall> call_;
  std::deque<ReplyPart> parts_;
  bool streams_ = false;  // the head of a stream was written
  BodyFraming framing_ = BodyFraming::kLength;
  TimePoint probed_at_{};  // when a peer that sends no more was last asked whether it is there
};

}  // namespace folio
