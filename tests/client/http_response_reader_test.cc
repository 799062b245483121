#include "client/load_test/http_response_reader.h"

#include <gtest/gtest.h>

#include <string>

namespace folio::client {
namespace {

struct Read {
  HttpHead head;
  std::string body, failure;
  bool done = false, keeps = false;
};

Read read(std::string_view bytes, std::size_t piece, bool end = false) {
  HttpResponseReader reader;
  Read out;
  for (std::size_t at = 0; at < bytes.size() && reader.failure().empty() && !reader.is_done(); at += piece) {
    reader.append(bytes.substr(at, piece));
    out.body += reader.take_body();
  }
  if (end && reader.failure().empty() && !reader.is_done()) reader.append_end();
  out.body += reader.take_body();
  out.head = reader.head();
  out.failure = reader.failure();
  out.done = reader.is_done();
  out.keeps = reader.keeps_connection();
  return out;
}

TEST(HttpResponseReader, ReadsEveryFramingHoweverItIsCut) {
  struct Case {
    std::string bytes;
    bool keeps;
    bool ends;  // by the end of the connection
  };
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream ; charset=utf-8\r\n";
  const std::vector<Case> cases = {
      {head + "Content-Length: 10\r\n\r\nhello body", true, false},
      {head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n5;x=y\r\n body\r\n0\r\n\r\n", true, false},
      {head + "Transfer-Encoding: chunked\r\n\r\nA\r\nhello body\r\n0\r\nTrailer: x\r\n\r\n", true, false},
      {head + "\r\nhello body", false, true},
      {head + "Connection: close\r\nContent-Length: 10\r\n\r\nhello body", false, false},
      {"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\nhello body", false, true},
      {"HTTP/1.1 100 Continue\r\n\r\n" + head + "Content-Length: 10\r\n\r\nhello body", true, false},
  };
  for (const Case& sample : cases) {
    for (std::size_t piece = 1; piece <= sample.bytes.size(); ++piece) {
      const Read got = read(sample.bytes, piece, sample.ends);
      EXPECT_EQ(got.failure, "") << sample.bytes;
      EXPECT_EQ(got.head.status, 200);
      EXPECT_EQ(got.head.content_type, "text/event-stream");
      EXPECT_EQ(got.body, "hello body") << sample.bytes << " in pieces of " << piece;
      EXPECT_TRUE(got.done);
      EXPECT_EQ(got.keeps, sample.keeps) << sample.bytes;
    }
  }
}

TEST(HttpResponseReader, AnAnswerThatIsCutOrIsNoneIsAFailure) {
  for (const char* bytes : {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
                            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"}) {
    const Read got = read(bytes, 7, true);
    EXPECT_FALSE(got.done);
    EXPECT_EQ(got.failure, "the server closed the connection in the middle of its answer") << bytes;
    EXPECT_EQ(got.body, "hello");
  }
  for (const char* bytes : {"HTTP/1.1 200 OK\r\nContent-Le", "H"}) {
    EXPECT_EQ(read(bytes, 100, true).failure, "the server closed the connection without an answer") << bytes;
  }
  for (const std::string& bytes :
       {std::string("SSH-2.0-OpenSSH\r\n\r\n"), std::string("HTTP/1.1 abc\r\n\r\n"),
        std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n"),
        "HTTP/1.1 200 OK\r\n" + std::string(100'000, 'a') + "\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + std::string(100'000, 'a'),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: " + std::string(100'000, 'a')}) {
    const Read got = read(bytes, 1000);
    EXPECT_EQ(got.failure.substr(0, 25), "not a valid HTTP response") << bytes.substr(0, 60);
  }
}

TEST(HttpResponseReader, WhatFollowsAResponseSpoilsItsConnection) {
  const Read got = read("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", 1000);
  EXPECT_TRUE(got.done);
  EXPECT_EQ(got.body, "ok");
  EXPECT_FALSE(got.keeps);
}

TEST(HttpResponseReader, AnAnnouncedLengthReservesNothing) {
  const Read got = read("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999\r\n\r\nhello", 1000);
  EXPECT_EQ(got.failure, "");
  EXPECT_EQ(got.body, "hello");
}

}  // namespace
}  // namespace folio::client
