#include "server/http/connection.h"

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <utility>
#include <variant>

#include "base/log.h"
#include "server/http/http_error.h"

namespace folio {
namespace {

namespace asio = boost::asio;
using asio::awaitable;

// Above the largest header, which is parsed in one piece; a pipelining client gets this far ahead.
constexpr std::size_t kSmallReadAhead = 64U << 10;
constexpr std::size_t kBytesPerBodySecond = 32U << 10;
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr auto kProbeInterval = std::chrono::seconds(1);
// A body up to this size goes out together with its head.
constexpr std::size_t kJoinedBytes = 64U << 10;

TimePoint now() {
  return std::chrono::steady_clock::now();
}

std::size_t read_ahead(const HttpLimits& limits) {
  return std::max(kSmallReadAhead, 2 * limits.max_header_bytes);
}

void log_answer(const HttpRequest& head, const HttpResponse& response) {
  log::debug("http: " + head.method + " " + std::string(head.path()) + " " + std::to_string(response.status));
}

// What a peer may be able to cause. (Never destroyed: connections may outlive main.)
void log_failure(const std::string& message) {
  static auto* const failures = new log::Limited(log::Level::kError);
  failures->write(message);
}

}  // namespace

Connection::Connection(asio::any_io_executor executor, std::unique_ptr<Transport> transport, ConnectionHost& host,
                       bool refused)
    : host_(host),
      transport_(std::move(transport)),
      executor_(std::move(executor)),
      refused_(refused),
      changed_(executor_),
      has_room_(executor_) {}

void Connection::start() {
  asio::co_spawn(
      executor_, [self = shared_from_this()] { return self->run(); }, asio::detached);
}

void Connection::send(ReplyPart part) {
  asio::post(executor_, [self = shared_from_this(), part = std::move(part)]() mutable {
    self->parts_.push_back(std::move(part));
    self->notify();
  });
}

void Connection::notify() {
  changed_.cancel();
}

void Connection::set_gone() {
  gone_ = true;
  if (call_) call_->abandon();
  notify();
}

void Connection::close() {
  transport_->close();
  has_room_.cancel();
  set_gone();
}

void Connection::end_if_idle() {
  if (idle_) close();
}

void Connection::check(TimePoint time) {
  if (time >= write_deadline_) {
    log::debug("http: a peer took nothing in time, its connection is closed");
    if (call_ && host_.options.on_write_timeout) host_.options.on_write_timeout();
    return close();
  }
  if (call_ && transport_->silence(time) >= host_.options.limits.silence_timeout) {
    log::debug("http: a peer is silent, its connection is closed");
    close();
  }
}

awaitable<void> Connection::run() {
  try {
    co_await serve();
  } catch (const std::exception& failure) {
    log_failure(std::string("http: a connection failed: ") + failure.what());
  }
  if (call_) call_->abandon();
  call_.reset();
  count_body(0);
  close();
  host_.ended(*this);
}

awaitable<void> Connection::serve() {
  write_deadline_ = now() + host_.options.limits.header_timeout;
  Transport::ErrorCode failure;
  co_await transport_->handshake(failure);
  write_deadline_ = kNoDeadline;
  if (failure) {
    log::debug("http: TLS handshake: " + failure.message());
    co_return;
  }
  asio::co_spawn(
      executor_, [self = shared_from_this()] { return self->read_all(); }, asio::detached);
  if (refused_) {
    const HttpRequest nothing_asked;
    co_await respond(nothing_asked, error_response(503, "too many connections", "too_many_connections"), false);
  } else {
    bool more = true;
    while (more) more = co_await serve_one();
  }
  co_await linger();
}

// Reads for as long as the peer sends and there is room.
awaitable<void> Connection::read_all() {
  std::array<char, 8192> bytes;
  const std::size_t limit = read_ahead(host_.options.limits);
  Transport::ErrorCode failure;
  while (!failure && !gone_) {
    if (inbox_.size() >= limit) {
      has_room_.expires_at(TimePoint::max());
      Transport::ErrorCode ignored;
      co_await has_room_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
      continue;
    }
    const std::size_t count = co_await transport_->read_some(asio::buffer(bytes), failure);
    if (!discards_) inbox_.append(bytes.data(), count);
    if (count > 0) notify();
  }
  if (failure == asio::error::eof && transport_->may_half_close()) {
    eof_ = true;
    notify();
    co_await transport_->wait_broken();
  }
  set_gone();
}

// Until notify, or `until`. What is waited for is looked at again by the caller.
awaitable<void> Connection::wait(TimePoint until) {
  changed_.expires_at(until);
  Transport::ErrorCode ignored;
  co_await changed_.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

// RFC 9112, 2.2: empty lines before a request are passed over. Old clients send one after a body.
void Connection::drop_empty_lines() {
  std::size_t length = 0;
  while (inbox_.compare(length, 2, "\r\n") == 0) length += 2;
  if (length == 0) return;
  inbox_.erase(0, length);
  has_room_.cancel();
}

bool Connection::has_request() {
  drop_empty_lines();
  return !inbox_.empty() && inbox_ != "\r";
}

// Until the first byte of a request is there. False: there will be none.
awaitable<bool> Connection::wait_for_request() {
  const TimePoint deadline = now() + host_.options.limits.idle_timeout;
  if (inbox_.empty()) inbox_.shrink_to_fit();
  idle_ = true;
  host_.idle(*this, true);
  while (!has_request() && !eof_ && !gone_ && !host_.closing && now() < deadline) co_await wait(deadline);
  host_.idle(*this, false);
  idle_ = false;
  co_return has_request() && !gone_ && !host_.closing;
}

void Connection::count_body(std::size_t num_bytes) {
  host_.num_body_bytes += num_bytes - num_body_bytes_;
  num_body_bytes_ = num_bytes;
}

// Gives the parser what it takes. 0: it wants more than there is.
std::size_t Connection::feed(RequestParser& parser) {
  const std::size_t used = parser.put(inbox_);
  inbox_.erase(0, used);
  if (used > 0) has_room_.cancel();
  if (parser.head_done() && !parser.refusal()) count_body(parser.num_body_bytes());
  return used;
}

// Until the parser is through with the stage. False: it will not be, and who is still there was told why.
awaitable<bool> Connection::read(RequestParser& parser, Stage stage) {
  const HttpLimits& limits = host_.options.limits;
  const TimePoint start = now();
  const auto ready = [&] { return stage == Stage::kHead ? parser.head_done() : parser.done(); };
  std::optional<HttpResponse> refusal;
  while (!refusal && !ready()) {
    const std::size_t used = feed(parser);
    refusal = parser.refusal();
    if (refusal || used > 0) continue;
    const auto extra = std::chrono::seconds(parser.head_done() ? parser.num_body_bytes() / kBytesPerBodySecond : 0);
    const TimePoint deadline = start + (stage == Stage::kHead ? limits.header_timeout : limits.body_timeout + extra);
    if (gone_) co_return false;
    if (eof_) {
      refusal = error_response(400, "the request ends before its end");
    } else if (now() >= deadline) {
      refusal = error_response(408, "the request did not come in time");
    } else if (inbox_.size() >= read_ahead(limits)) {
      refusal = error_response(400, "a line of a chunk or trailer is too long");
    } else if (host_.num_body_bytes > limits.max_waiting_body_bytes) {
      refusal = error_response(503, "too many bodies arrive at once");
    } else {
      const std::size_t before = inbox_.size();
      while (inbox_.size() == before && !eof_ && !gone_ && now() < deadline) co_await wait(deadline);
    }
  }
  if (!refusal) refusal = parser.refusal();
  if (!refusal) co_return true;
  co_await respond(parser.head(), std::move(*refusal), false);
  co_return false;
}

// One request and its answer. False: the connection is at its end.
awaitable<bool> Connection::serve_one() {
  if (!co_await wait_for_request()) co_return false;
  RequestParser parser(host_.options.limits);
  if (!co_await read(parser, Stage::kHead)) co_return false;
  auto admitted = host_.router.admit(parser.head());
  if (auto* refusal = std::get_if<HttpResponse>(&admitted)) {
    // A body that nobody wants is not waited for.
    co_return co_await respond(parser.head(), std::move(*refusal), parser.done() && parser.head().keep_alive);
  }
  if (!parser.done() && parser.head().expects_continue && inbox_.empty()) {
    if (!co_await write(kContinue)) co_return false;
  }
  const bool whole = co_await read(parser, Stage::kBody);
  count_body(0);
  if (!whole) co_return false;

  const HttpRequest head = parser.head();
  const bool keep_alive = head.keep_alive;
  streams_ = false;
  parts_.clear();
  auto answer =
      host_.router.start(parser.take(), std::move(std::get<HttpRouter::Admitted>(admitted)), weak_from_this());
  if (auto* response = std::get_if<HttpResponse>(&answer)) {
    co_return co_await respond(head, std::move(*response), keep_alive);
  }
  call_ = std::move(std::get<std::shared_ptr<HttpCall>>(answer));
  const bool more = co_await relay(head, keep_alive);
  call_.reset();
  co_return more;
}

// Writes what the call makes, to its last part. False: the connection is at its end.
awaitable<bool> Connection::relay(const HttpRequest& head, bool keep_alive) {
  bool last = false;
  while (!last) {
    if (!co_await next_part(head)) {
      call_->abandon();
      co_return false;
    }
    ReplyPart part = std::move(parts_.front());
    parts_.pop_front();
    last = part.last;
    if (!co_await relay_part(head, std::move(part), keep_alive)) {
      call_->abandon();
      co_return false;
    }
    if (!last) call_->written();
  }
  co_return keep_alive;
}

// Until there is a part. False: there is nobody to write it to.
awaitable<bool> Connection::next_part(const HttpRequest& head) {
  while (parts_.empty() && !gone_) {
    if (!eof_) {
      co_await wait(kNoDeadline);
      continue;
    }
    // The peer closed its sending side, or everything: only what is sent to it can tell. HTTP/1.1 has an answer that
    // says nothing, and so have events; before 1.1 who sends no more counts as gone.
    if (head.version == 10) co_return false;
    if (now() >= probed_at_ + kProbeInterval) {
      probed_at_ = now();
      std::string probe(kContinue);
      if (streams_) probe = chunk_of(":\n\n");
      if (!co_await write(probe)) co_return false;
      continue;
    }
    co_await wait(probed_at_ + kProbeInterval);
  }
  co_return !gone_;
}

awaitable<bool> Connection::relay_part(const HttpRequest& head, ReplyPart part, bool& keep_alive) {
  if (part.response && !part.streams) {
    co_return co_await respond(head, std::move(*part.response), keep_alive);
  }
  std::string bytes;
  if (part.response) {
    streams_ = true;
    framing_ = head.version == 10 ? BodyFraming::kClose : BodyFraming::kChunked;
    if (framing_ == BodyFraming::kClose || host_.closing) keep_alive = false;
    host_.router.add_headers(head, *part.response);
    log_answer(head, *part.response);
    bytes = response_head(*part.response, framing_, head.version, keep_alive);
  }
  if (framing_ == BodyFraming::kChunked) {
    if (!part.bytes.empty()) bytes += chunk_of(part.bytes);
    if (part.last) bytes += kLastChunk;
  } else {
    bytes += part.bytes;
  }
  co_return co_await write(bytes);
}

// Writes a whole response. True: the connection can go on.
awaitable<bool> Connection::respond(const HttpRequest& head, HttpResponse response, bool keep_alive) {
  keep_alive = keep_alive && !response.close && !host_.closing;
  host_.router.add_headers(head, response);
  log_answer(head, response);
  std::string bytes = response_head(response, BodyFraming::kLength, head.version, keep_alive);
  const bool has_body = head.method != "HEAD";
  const bool joined = response.body.size() <= kJoinedBytes;
  if (has_body && joined) bytes += response.body;
  if (!co_await write(bytes)) co_return false;
  if (has_body && !joined && !co_await write(response.body)) co_return false;
  co_return keep_alive;
}

awaitable<bool> Connection::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (gone_) co_return false;
    // Anew for each piece that the peer took.
    write_deadline_ = now() + host_.options.limits.write_timeout;
    Transport::ErrorCode failure;
    const std::size_t count = co_await transport_->write_some(asio::buffer(bytes.data(), bytes.size()), failure);
    write_deadline_ = kNoDeadline;
    if (failure) {
      set_gone();
      co_return false;
    }
    bytes.remove_prefix(count);
  }
  co_return true;
}

// Closing while bytes of the peer's are unread would throw away what it has not read yet of ours.
awaitable<void> Connection::linger() {
  discards_ = true;
  inbox_.clear();
  has_room_.cancel();
  if (gone_) co_return;
  const TimePoint deadline = now() + kLingerTime;
  write_deadline_ = deadline;
  co_await transport_->end_writes();
  write_deadline_ = kNoDeadline;
  while (!eof_ && !gone_ && !host_.closing && now() < deadline) co_await wait(deadline);
}

}  // namespace folio
