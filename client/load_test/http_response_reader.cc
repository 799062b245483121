#include "client/load_test/http_response_reader.h"

#include <algorithm>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <optional>
#include <utility>

namespace folio::client {
namespace {

namespace http = boost::beast::http;
using ErrorCode = boost::system::error_code;

constexpr std::uint32_t kMaxHeadBytes = 64U << 10;

// A string that grows by what came: unlike string_body, a length that a server announces reserves nothing.
struct GrowingBody {
  using value_type = std::string;

  class reader {
   public:
    template <bool isRequest, class Fields>
    reader(http::header<isRequest, Fields>& /*head*/, value_type& body) : body_(body) {}
    void init(const boost::optional<std::uint64_t>& /*length*/, ErrorCode& error) { error = {}; }
    template <class Buffers>
    std::size_t put(const Buffers& buffers, ErrorCode& error) {
      error = {};
      const std::size_t before = body_.size();
      for (const auto& buffer : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(buffer.data()), buffer.size());
      }
      return body_.size() - before;
    }
    void finish(ErrorCode& error) { error = {}; }

   private:
    value_type& body_;
  };
};

std::string small_letters(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return out;
}

std::string media_type(std::string_view content_type) {
  content_type = content_type.substr(0, content_type.find(';'));
  while (content_type.ends_with(' ')) content_type.remove_suffix(1);
  return small_letters(content_type);
}

}  // namespace

struct HttpResponseReader::Beast {
  using Parser = http::response_parser<GrowingBody>;
  std::optional<Parser> parser;

  void restart() {
    parser.emplace();
    parser->header_limit(kMaxHeadBytes);
    parser->body_limit(boost::none);
    parser->eager(true);
  }
};

HttpResponseReader::HttpResponseReader() : beast_(std::make_unique<Beast>()) {
  beast_->restart();
}

HttpResponseReader::~HttpResponseReader() = default;

void HttpResponseReader::append(std::string_view bytes) {
  inbox_ += bytes;
  while (!inbox_.empty() && !is_done()) {
    ErrorCode error;
    const std::size_t used = beast_->parser->put(boost::asio::buffer(inbox_.data(), inbox_.size()), error);
    inbox_.erase(0, used);
    if (error && error != http::error::need_more) {
      failure_ = "not a valid HTTP response: " + error.message();
      return;
    }
    if (!has_head() && beast_->parser->is_header_done()) {
      const unsigned status = beast_->parser->get().result_int();
      if (status < 200) {  // an interim one: the response follows
        beast_->restart();
        continue;
      }
      read_head();
    }
    if (error || used == 0) break;
  }
  // What is left is the beginning of a line: of a chunk, or of a trailer.
  if (!is_done() && inbox_.size() > kMaxHeadBytes) failure_ = "not a valid HTTP response: a line without an end";
}

void HttpResponseReader::append_end() {
  ErrorCode error;
  beast_->parser->put_eof(error);
  if (error || !is_done()) {
    failure_ = has_head() ? "the server closed the connection in the middle of its answer"
                          : "the server closed the connection without an answer";
  }
}

void HttpResponseReader::read_head() {
  const auto& message = beast_->parser->get();
  const auto field = [&message](http::field name) {
    const auto value = message[name];
    return std::string(value.data(), value.size());
  };
  head_.status = static_cast<int>(message.result_int());
  head_.content_type = media_type(field(http::field::content_type));
  head_.content_encoding = small_letters(field(http::field::content_encoding));
}

std::string HttpResponseReader::take_body() {
  return std::exchange(beast_->parser->get().body(), {});
}

bool HttpResponseReader::is_done() const {
  return has_head() && beast_->parser->is_done();
}

bool HttpResponseReader::keeps_connection() const {
  return failure_.empty() && is_done() && inbox_.empty() && beast_->parser->keep_alive();
}

}  // namespace folio::client
