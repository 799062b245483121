#include "server/http/request_parser.h"

#include <algorithm>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "server/http/http_error.h"

namespace folio {
namespace {

namespace http = boost::beast::http;
using boost::beast::string_view;

constexpr std::size_t kMaxRequestIdBytes = 128;

std::string to_string(string_view text) {
  return {text.data(), text.size()};
}

// Visible ASCII alone may go into a header and a log.
bool is_label(string_view text) {
  return !text.empty() && text.size() <= kMaxRequestIdBytes &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// RFC 9112, 3.2.2: "http://host/path", as for a proxy, is taken for "/path".
string_view without_origin(string_view target) {
  for (const string_view scheme : {"http://", "https://"}) {
    if (!boost::beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
    const std::size_t path = target.find('/', scheme.size());
    return path == string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

int status_of(const boost::system::error_code& error) {
  if (error == http::error::header_limit) return 431;
  if (error == http::error::body_limit) return 413;
  return 400;
}

}  // namespace

struct RequestParser::Beast {
  http::request_parser<http::string_body> parser;
};

RequestParser::RequestParser(const HttpLimits& limits) : limits_(limits), beast_(std::make_unique<Beast>()) {
  beast_->parser.header_limit(static_cast<std::uint32_t>(limits.max_header_bytes));
  beast_->parser.body_limit(limits.max_body_bytes);
}

RequestParser::~RequestParser() = default;

bool RequestParser::done() const {
  return !refusal_ && head_done_ && beast_->parser.is_done();
}

std::size_t RequestParser::num_body_bytes() const {
  return beast_->parser.get().body().size();
}

void RequestParser::refuse(int status, std::string_view message) {
  refusal_ = error_response(status, message);
  refusal_->close = true;
}

void RequestParser::refuse_long_header() {
  refuse(431,
         "the request line and header are over the limit of " + std::to_string(limits_.max_header_bytes) + " bytes");
}

// Beast's parser throws, instead of an error, where a field's name or value is longer than 64 KiB.
std::size_t RequestParser::put(std::string_view bytes) {
  try {
    return put_all(bytes);
  } catch (const std::length_error&) {
    if (head_done_) {
      refuse(400, "a field of the trailer is too long");
    } else {
      refuse_long_header();
    }
    return bytes.size();
  }
}

std::size_t RequestParser::put_all(std::string_view bytes) {
  if (bytes.empty()) return 0;
  boost::system::error_code error;
  const std::size_t used = beast_->parser.put(boost::asio::buffer(bytes.data(), bytes.size()), error);
  if (error && error != http::error::need_more) {
    const int status = status_of(error);
    if (status == 413) {
      refuse(413, "the body is over the limit of " + std::to_string(limits_.max_body_bytes) + " bytes");
    } else if (status == 431) {
      refuse_long_header();
    } else {
      refuse(status, "not a valid HTTP request: " + error.message());
    }
  } else if (!head_done_) {
    // Beast holds to the limit only where a header comes in several pieces.
    num_head_bytes_ += used;
    if (num_head_bytes_ > limits_.max_header_bytes) {
      refuse_long_header();
    } else if (beast_->parser.is_header_done()) {
      read_head();
    }
  }
  return used;
}

void RequestParser::read_head() {
  head_done_ = true;
  beast_->parser.eager(true);
  const auto& message = beast_->parser.get();
  const auto field = [&message](http::field name) { return to_string(message[name]); };
  request_.method = to_string(message.method_string());
  request_.target = to_string(without_origin(message.target()));
  request_.version = static_cast<int>(message.version());
  request_.keep_alive = beast_->parser.keep_alive();
  request_.content_type = field(http::field::content_type);
  request_.content_encoding = field(http::field::content_encoding);
  request_.origin = field(http::field::origin);
  if (const auto label = message["X-Request-Id"]; is_label(label)) request_.request_id = to_string(label);
  const auto [first, last] = message.equal_range(http::field::authorization);
  for (auto it = first; it != last; ++it) request_.authorization.push_back(to_string(it->value()));
  request_.is_preflight = request_.method == "OPTIONS" && message.count(http::field::access_control_request_method) > 0;

  const auto num_hosts = message.count(http::field::host);
  if (num_hosts > 1 || (num_hosts == 0 && request_.version == 11)) return refuse(400, "one Host field is wanted");
  // A length that we read and somebody in front of us reads otherwise would smuggle a second request in.
  const auto num_codings = message.count(http::field::transfer_encoding);
  if (num_codings > 0 && (request_.version == 10 || num_codings > 1 ||
                          !boost::beast::iequals(message[http::field::transfer_encoding], "chunked"))) {
    return refuse(501, "Transfer-Encoding: only chunked is understood");
  }
  if (const std::string expect = field(http::field::expect); !expect.empty()) {
    if (!boost::beast::iequals(expect, "100-continue")) return refuse(417, "Expect: only 100-continue is understood");
    request_.expects_continue = request_.version == 11;
  }
}

HttpRequest RequestParser::take() {
  request_.body = std::move(beast_->parser.get().body());
  return std::move(request_);
}

}  // namespace folio
