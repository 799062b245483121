#include "server/http/request_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace folio {
namespace {

using ::testing::HasSubstr;
using namespace std::string_view_literals;

struct Parsed {
  int refused = 0;  // status, or 0
  std::string message;
  HttpRequest request;
  bool done = false;
  std::string rest;  // bytes that are not this request's
};

// Gives the bytes in pieces of `step`, as a socket might.
Parsed parse(std::string_view bytes, std::size_t step, const HttpLimits& limits = {}) {
  RequestParser parser(limits);
  std::string inbox;
  Parsed out;
  while (!bytes.empty() || !inbox.empty()) {
    const std::size_t used = parser.put(inbox);
    inbox.erase(0, used);
    if (parser.refusal() || parser.done()) break;
    if (used > 0) continue;
    if (bytes.empty()) break;
    inbox += bytes.substr(0, step);
    bytes.remove_prefix(std::min(step, bytes.size()));
  }
  out.rest = inbox + std::string(bytes);
  if (parser.refusal()) {
    out.refused = parser.refusal()->status;
    out.message = parser.refusal()->body;
    return out;
  }
  out.done = parser.done();
  if (out.done) out.request = parser.take();
  return out;
}

// The same whatever the pieces are.
Parsed parse_all_ways(std::string_view bytes, const HttpLimits& limits = {}) {
  const Parsed whole = parse(bytes, bytes.size() + 1, limits);
  for (const std::size_t step : {1U, 3U, 17U}) {
    const Parsed pieces = parse(bytes, step, limits);
    EXPECT_EQ(pieces.refused, whole.refused) << bytes.substr(0, 80);
    EXPECT_EQ(pieces.done, whole.done) << bytes.substr(0, 80);
    EXPECT_EQ(pieces.request.body, whole.request.body);
  }
  return whole;
}

TEST(RequestParser, ARequestWithABody) {
  const Parsed parsed = parse_all_ways(
      "POST /v1/completions?x=1 HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nAuthorization: Bearer k\r\n"
      "X-Request-Id: label-1\r\nContent-Length: 5\r\n\r\nhelloGET /next");
  ASSERT_TRUE(parsed.done);
  EXPECT_EQ(parsed.request.method, "POST");
  EXPECT_EQ(parsed.request.path(), "/v1/completions");
  EXPECT_EQ(parsed.request.content_type, "application/json");
  EXPECT_THAT(parsed.request.authorization, ::testing::ElementsAre("Bearer k"));
  EXPECT_EQ(parsed.request.request_id, "label-1");
  EXPECT_TRUE(parsed.request.keep_alive);
  EXPECT_EQ(parsed.request.body, "hello");
  EXPECT_EQ(parsed.rest, "GET /next");
}

TEST(RequestParser, ATargetAsForAProxy) {
  const auto target = [](const std::string& sent) {
    return parse_all_ways("GET " + sent + " HTTP/1.1\r\nHost: h\r\n\r\n").request.target;
  };
  EXPECT_EQ(target("http://h:8080/v1/models?x"), "/v1/models?x");
  EXPECT_EQ(target("HTTPS://h/"), "/");
  EXPECT_EQ(target("http://h"), "/");
  EXPECT_EQ(target("//h/health"), "//h/health");
  EXPECT_EQ(target("/http://h/health"), "/http://h/health");
}

TEST(RequestParser, Chunks) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  const Parsed parsed = parse_all_ways(head + "3\r\nabc\r\nA;name=value\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nrest");
  ASSERT_TRUE(parsed.done);
  EXPECT_EQ(parsed.request.body, "abc0123456789");
  EXPECT_EQ(parsed.rest, "rest");
  for (const char* bad : {"x\r\nabc\r\n", "-1\r\n\r\n", "3\r\nabcd\r\n", "3 \nabc", "FFFFFFFFFFFFFFFFF\r\n", "\r\n",
                          "0x3\r\nabc\r\n0\r\n\r\n"}) {
    // What follows is right, so that nothing is only unfinished.
    const int refused = parse_all_ways(head + bad + "5\r\n12345\r\n0\r\n\r\n\r\n\r\n").refused;
    EXPECT_TRUE(refused == 400 || refused == 413) << bad << ": " << refused;
  }
}

TEST(RequestParser, Lengths) {
  const auto refused = [](const std::string& fields, const std::string& body = "") {
    return parse_all_ways("POST / HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n" + body).refused;
  };
  EXPECT_EQ(refused("Content-Length: -1\r\n"), 400);
  EXPECT_EQ(refused("Content-Length: 5x\r\n"), 400);
  EXPECT_EQ(refused("Content-Length: \r\n"), 400);
  EXPECT_EQ(refused("Content-Length: 5\r\nContent-Length: 6\r\n"), 400);
  EXPECT_EQ(refused("Content-Length: 5, 6\r\n"), 400);
  EXPECT_EQ(refused("Content-Length: 99999999999999\r\n"), 413);
  EXPECT_EQ(refused("Content-Length: 99999999999999999999999\r\n"), 400);
  EXPECT_EQ(refused("Content-Length: 16777217\r\n"), 413);
  EXPECT_EQ(refused("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400);
  EXPECT_EQ(refused("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400);
  EXPECT_EQ(refused("Transfer-Encoding: gzip\r\n"), 501);
  EXPECT_EQ(refused("Transfer-Encoding: gzip, chunked\r\n"), 501);
  EXPECT_EQ(refused("Transfer-Encoding: chunked, identity\r\n"), 501);
  EXPECT_EQ(refused("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n"), 501);
  EXPECT_EQ(parse_all_ways("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").refused, 501);
}

TEST(RequestParser, ABodyOverTheLimit) {
  HttpLimits limits;
  limits.max_body_bytes = 8;
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_TRUE(parse_all_ways(head + "Content-Length: 8\r\n\r\n12345678", limits).done);
  const Parsed long_one = parse_all_ways(head + "Content-Length: 9\r\n\r\n", limits);
  EXPECT_EQ(long_one.refused, 413);
  EXPECT_THAT(long_one.message, HasSubstr("limit of 8 bytes"));
  EXPECT_EQ(parse_all_ways(head + "Transfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n5\r\n12345\r\n", limits).refused,
            413);
}

TEST(RequestParser, AHeaderOverTheLimit) {
  const std::string head = "GET / HTTP/1.1\r\nHost: h\r\n";
  const Parsed one_field = parse(head + "X: " + std::string(1U << 20U, 'x') + "\r\n\r\n", 4096);
  EXPECT_EQ(one_field.refused, 431);
  EXPECT_THAT(one_field.message, HasSubstr("16384"));
  std::string many;
  for (int i = 0; i < 10'000; ++i) many += "X-" + std::to_string(i) + ": 1\r\n";
  EXPECT_EQ(parse(head + many + "\r\n", 4096).refused, 431);
  EXPECT_EQ(parse("GET /" + std::string(1U << 20U, 'a') + " HTTP/1.1\r\n", 4096).refused, 431);
}

// Where Beast throws: above 64 KiB in one piece.
TEST(RequestParser, AFieldLongerThanTheLibraryTakes) {
  const std::string field = "X: " + std::string(70'000, 'x') + "\r\n\r\n";
  EXPECT_EQ(parse("GET / HTTP/1.1\r\nHost: h\r\n" + field, 100'000).refused, 431);
  const Parsed trailer =
      parse("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + field, 100'000);
  EXPECT_EQ(trailer.refused, 400);
  EXPECT_THAT(trailer.message, HasSubstr("trailer"));
  const std::string name = std::string(70'000, 'n') + ": x\r\n\r\n";
  EXPECT_EQ(parse("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + name, 100'000).refused,
            400);
}

TEST(RequestParser, WhatIsNoRequest) {
  const char* const cases[] = {
      "\x16\x03\x01\x02\x00\x01",  // TLS, spoken to a port in the clear
      "nonsense\r\n\r\n",
      "GET /\r\n\r\n",
      "GET / HTTP/1.1\nHost: h\n\n",
      "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX\x01: 1\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX: a\nb\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nX: \x7F\r\n\r\n",
      "GET / HTTP/1.1\r\n\r\n",                        // no Host
      "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",  // two
      "G\xC3\x89T / HTTP/1.1\r\nHost: h\r\n\r\n",
      "GET /a b HTTP/1.1\r\nHost: h\r\n\r\n",
  };
  for (const char* bytes : cases) {
    EXPECT_EQ(parse(bytes, 1000).refused, 400) << bytes;
    EXPECT_FALSE(parse(bytes, 1).done) << bytes;  // some are waited for, until their time is up
  }
  EXPECT_EQ(parse_all_ways("GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n"sv).refused, 400);
  EXPECT_EQ(parse_all_ways("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").refused, 400);
}

TEST(RequestParser, ALabelThatCouldForgeAHeaderIsDropped) {
  const auto label = [](const std::string& value) {
    const Parsed parsed = parse_all_ways("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: " + value + "\r\n\r\n");
    EXPECT_TRUE(parsed.done) << value;
    return parsed.request.request_id;
  };
  EXPECT_EQ(label("abc%0d%0aX-Evil: 1"), "");
  EXPECT_EQ(label("abc%0d%0a"), "abc%0d%0a");  // percent signs are no control characters
  EXPECT_EQ(label("a b"), "");
  EXPECT_EQ(label("\xE6\xBC\xA2"), "");
  EXPECT_EQ(label("folded\r\n value"), "");
  EXPECT_EQ(label(std::string(129, 'x')), "");
  EXPECT_EQ(label(std::string(128, 'x')).size(), 128U);
}

TEST(RequestParser, Expectations) {
  const std::string head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n";
  EXPECT_TRUE(parse_all_ways(head + "Expect: 100-continue\r\n\r\nab").request.expects_continue);
  EXPECT_EQ(parse_all_ways(head + "Expect: miracles\r\n\r\nab").refused, 417);
}

TEST(RequestParser, KeepAlive) {
  const auto keeps = [](const std::string& version, const std::string& fields) {
    return parse_all_ways("GET / HTTP/" + version + "\r\nHost: h\r\n" + fields + "\r\n").request.keep_alive;
  };
  EXPECT_TRUE(keeps("1.1", ""));
  EXPECT_FALSE(keeps("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(keeps("1.0", ""));
  EXPECT_TRUE(keeps("1.0", "Connection: keep-alive\r\n"));
}

}  // namespace
}  // namespace folio
