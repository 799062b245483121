// C02 and C05: every way in which an answer fails, by its name; nothing is sent twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "client/load_test/openai_transport.h"
#include "client/load_test/sse_reader.h"
#include "tests/client/collected_answer.h"
#include "tests/client/mock_http_server.h"

namespace folio::test {
namespace {

using namespace std::chrono_literals;
using client::StreamEnd;
using ::testing::HasSubstr;

std::unique_ptr<client::Transport> transport_to(const std::string& address) {
  client::Connection connection;
  connection.address = address;
  return make_openai_transport(connection, 0);
}

struct Case {
  std::string name;
  std::function<void(MockPeer&)> answer;
  std::string error;
  std::string message;  // a part of it
  bool reuses;          // the connection
};

void send_tokens(MockPeer& peer, const std::string& more) {
  peer.send(std::string(kStreamHead) + event(text_data("some")) + event(text_data(" words")) + more);
}

std::vector<Case> failures() {
  const std::string failed = event(R"({"error":{"message":"out of blocks","type":"server_error","code":500}})");
  const std::string done = event("[DONE]") + std::string(kLastChunk);
  const std::string last(kLastChunk);
  const auto says = [](std::string bytes) { return [bytes](MockPeer& peer) { peer.send(bytes); }; };
  const auto streams = [](std::string more) { return [more](MockPeer& peer) { send_tokens(peer, more); }; };
  const auto error_json = [](const char* words) {
    return R"({"error":{"message":")" + std::string(words) + R"(","type":"x","code":null}})";
  };
  return {
      {"429", says(response(429, "application/json", error_json("queue full"))), "HTTP 429", "queue full", true},
      {"503", says(response(503, "application/json", error_json("loading"))), "HTTP 503", "loading", true},
      {"502", says(response(502, "text/html", "<h1>Bad Gateway</h1>")), "HTTP 502", "<h1>Bad Gateway</h1>", true},
      {"307", says(response(307, "text/plain", "")), "HTTP 307", "", true},
      {"500 as a stream", says("HTTP/1.1 500 No\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n"),
       "HTTP 500", "", true},
      {"error body", says(response(200, "application/json", error_json("no model"))), "error body", "no model", true},
      {"JSON", says(response(200, "application/json", R"({"choices":[{"text":"x"}]})")), "not a stream",
       "application/json", true},
      {"error first", says(std::string(kStreamHead) + failed + done), "error event", "out of blocks", true},
      {"error after tokens", streams(failed + done), "error event", "out of blocks", true},
      {"error, then no end", streams(failed + last), "error event", "out of blocks", true},
      {"error, then cut",
       [failed](MockPeer& peer) {
         send_tokens(peer, failed);
         peer.close();
       },
       "error event", "out of blocks", false},
      {"llama-server's old error", streams(chunk("error: {\"message\":\"slot gone\"}\n\n") + last), "error event",
       "slot gone", true},
      {"no end", streams(event(text_data("", "stop")) + last), "no end", "without [DONE]", true},
      {"no end, by the connection",
       [](MockPeer& peer) {
         peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: " + text_data("a") + "\n\n");
         peer.close();
       },
       "no end", "without [DONE]", false},
      {"cut in a chunked body",
       [](MockPeer& peer) {
         send_tokens(peer, "");
         peer.close();
       },
       "connection", "in the middle", false},
      {"reset in the middle",
       [](MockPeer& peer) {
         send_tokens(peer, "");
         std::this_thread::sleep_for(20ms);
         peer.reset();
       },
       "connection", "Connection reset", false},
      {"closed without an answer", [](MockPeer& peer) { peer.close(); }, "connection", "without an answer", false},
      {"closed in the head",
       [](MockPeer& peer) {
         peer.send("HTTP/1.1 200 O");
         peer.close();
       },
       "connection", "without an answer", false},
      {"finish error", streams(event(text_data("", "error")) + done), "finish error", "by the server", true},
      {"finish abort", streams(event(text_data("", "abort")) + done), "finish abort", "by the server", true},
      {"no finish", streams(done), "no finish", "finish_reason", true},
      {"no HTTP", says("220 mail.example ESMTP\r\n"), "bad answer", "not a valid HTTP response", false},
      {"no JSON", streams(event("{oops") + done), "bad answer", "{oops", true},
      {"compressed",
       says("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: "
            "3\r\n\r\nabc"),
       "bad answer", "gzip", false},
      {"an endless line", streams(chunk("data: " + std::string(client::SseReader::kMaxEventBytes + 1, 'x'))),
       "bad answer", "4 MiB", false},
  };
}

TEST(OpenAiFailures, EachByItsName) {
  for (const Case& sample : failures()) {
    SCOPED_TRACE(sample.name);
    const MockHttpServer server([&](const MockRequest&, MockPeer& peer) { sample.answer(peer); });
    const auto transport = transport_to(server.address());
    for (int i = 0; i < 2; ++i) {
      const StreamEnd end = collect(*transport, {})->wait();
      EXPECT_EQ(end.error, sample.error) << end.message;
      EXPECT_THAT(end.message, HasSubstr(sample.message));
      EXPECT_FALSE(end.is_estimate);
    }
    EXPECT_EQ(server.num_requests(), 2);  // no retry
    EXPECT_EQ(server.num_connections(), sample.reuses ? 1 : 2);
  }
}

// C02: an answer without a token has its normal end, and no content.
TEST(OpenAiFailures, AnEmptyAnswerIsNoFailureAndHasNoContent) {
  const std::string done = event("[DONE]") + std::string(kLastChunk);
  for (const std::string& body :
       {done, event(usage_data(5, 0)) + done, event(text_data("", "stop")) + event(usage_data(5, 0)) + done}) {
    const MockHttpServer server(
        [&](const MockRequest&, MockPeer& peer) { peer.send(std::string(kStreamHead) + body); });
    const auto transport = transport_to(server.address());
    const auto answer = collect(*transport, {});
    EXPECT_EQ(answer->wait().error, "");
    EXPECT_EQ(answer->wait().output_tokens.value_or(0), 0);
    EXPECT_EQ(answer->text_bytes() + answer->tokens(), 0);
  }
}

TEST(OpenAiFailures, NobodyThere) {
  const auto transport = transport_to("127.0.0.1:1");
  const StreamEnd end = collect(*transport, {})->wait();
  EXPECT_EQ(end.error, "connection");
  EXPECT_EQ(end.message, "Connection refused");
}

TEST(OpenAiFailures, ARefusalBeforeTheWholeRequestWasReadIsHeard) {
  const MockHttpServer server(
      [](const MockRequest&, MockPeer& peer) {
        peer.send(response(413, "application/json", R"({"error":{"message":"too large"}})"));
        peer.close();
      },
      MockHttpServer::When::kHead);
  client::RequestSpec spec;
  spec.text = std::string(16 << 20, 'x');  // more than the sockets' buffers take
  const auto transport = transport_to(server.address());
  const StreamEnd end = collect(*transport, spec)->wait();
  EXPECT_EQ(end.error, "HTTP 413");
  EXPECT_EQ(end.message, "too large");
}

TEST(OpenAiFailures, ACancelClosesTheConnection) {
  std::atomic<bool> closed{false};
  const MockHttpServer server([&closed](const MockRequest&, MockPeer& peer) {
    send_tokens(peer, "");
    closed.store(peer.wait_closed());
    peer.close();
  });
  const auto transport = transport_to(server.address());
  CollectedAnswer answer;
  const auto call = transport->start({}, answer);
  answer.wait_for_arrivals(2);
  call->cancel();
  call->cancel();
  EXPECT_EQ(answer.wait().error, "CANCELLED");
  for (int i = 0; i < 400 && !closed.load(); ++i) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(closed.load());
}

TEST(OpenAiFailures, ACancelAfterTheEndDoesNothing) {
  const MockHttpServer server([](const MockRequest&, MockPeer& peer) {
    send_tokens(peer,
                event(text_data("", "stop")) + event(usage_data(1, 2)) + event("[DONE]") + std::string(kLastChunk));
  });
  const auto transport = transport_to(server.address());
  CollectedAnswer answer;
  const auto call = transport->start({}, answer);
  EXPECT_EQ(answer.wait().error, "");
  call->cancel();
  EXPECT_EQ(collect(*transport, {})->wait().error, "");
  EXPECT_EQ(server.num_connections(), 1);
}

TEST(OpenAiFailures, ADeadlineRunsFromTheSending) {
  const MockHttpServer server([](const MockRequest&, MockPeer& peer) {
    send_tokens(peer, "");
    peer.wait_closed();
    peer.close();
  });
  const auto transport = transport_to(server.address());
  client::RequestSpec spec;
  spec.deadline = 60ms;
  const auto start = std::chrono::steady_clock::now();
  const auto answer = collect(*transport, spec);
  const auto time = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(answer->wait().error, "DEADLINE_EXCEEDED");
  EXPECT_EQ(answer->arrivals().size(), 2U);
  EXPECT_GE(time, 60ms);
  EXPECT_LT(time, 5s);
}

// A server that has said [DONE] and then neither ends the body nor the connection.
TEST(OpenAiFailures, AnAnswerIsOverAtItsDone) {
  const MockHttpServer server([](const MockRequest&, MockPeer& peer) {
    send_tokens(peer, event(text_data("", "stop")) + event(usage_data(1, 2)) + event("[DONE]"));
    peer.wait_closed();
    peer.close();
  });
  const auto transport = transport_to(server.address());
  const auto answer = collect(*transport, {});
  EXPECT_EQ(answer->wait().error, "");
  EXPECT_EQ(answer->wait().at, answer->arrivals().back().at);
}

TEST(OpenAiFailures, ATransportThatGoesEndsWhatRuns) {
  const MockHttpServer server([](const MockRequest&, MockPeer& peer) {
    send_tokens(peer, "");
    peer.wait_closed();
    peer.close();
  });
  CollectedAnswer first, second;
  std::unique_ptr<client::Call> calls[2];
  auto transport = transport_to(server.address());
  calls[0] = transport->start({}, first);
  calls[1] = transport->start({}, second);
  first.wait_for_arrivals(1);
  transport.reset();
  EXPECT_EQ(first.wait().error, "CANCELLED");
  EXPECT_EQ(second.wait().error, "CANCELLED");
  calls[0]->cancel();  // of an answer that is over
}

}  // namespace
}  // namespace folio::test
