// The OpenAI-style wire against a server with known truth: what it sends, and what arrives.
#include "client/load_test/openai_transport.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tests/client/collected_answer.h"
#include "tests/client/mock_http_server.h"

namespace folio::test {
namespace {

using namespace std::chrono_literals;
using client::RequestSpec;
using client::StreamEnd;
using ::testing::AllOf;
using ::testing::HasSubstr;

client::Connection connection_to(const MockHttpServer& server) {
  client::Connection out;
  out.address = server.address();
  return out;
}

std::unique_ptr<client::Transport> transport_to(const MockHttpServer& server, int connections = 0) {
  return make_openai_transport(connection_to(server), connections);
}

// A whole good answer.
void answer_well(MockPeer& peer, int num_tokens = 3) {
  std::string out(kStreamHead);
  for (int i = 0; i < num_tokens; ++i) out += event(text_data("word", i + 1 == num_tokens ? "length" : ""));
  peer.send(out + event(usage_data(5, num_tokens)) + event("[DONE]") + std::string(kLastChunk));
}

TEST(OpenAiTransport, ARequestIsSentAsItsSpecSays) {
  MockRequest seen;
  const MockHttpServer server([&seen](const MockRequest& request, MockPeer& peer) {
    if (request.line == "GET /v1/models HTTP/1.1") {
      return peer.send(response(200, "application/json", R"({"data":[{"id":"mock","max_model_len":99}]})"));
    }
    seen = request;
    answer_well(peer);
  });
  client::Connection connection = connection_to(server);
  connection.api_key = "secret";
  const auto transport = make_openai_transport(connection, 1);
  const client::ServedModel model = transport->model();
  EXPECT_EQ(model.name, "mock");
  EXPECT_EQ(model.max_context, 99);
  RequestSpec spec;
  spec.prompt = {4, 5};
  const auto answer = collect(*transport, spec);
  EXPECT_EQ(answer->wait().error, "");
  EXPECT_EQ(seen.line, "POST /v1/completions HTTP/1.1");
  EXPECT_THAT(seen.head, HasSubstr("Authorization: Bearer secret\r\n"));
  const auto body = nlohmann::json::parse(seen.body);
  EXPECT_EQ(body["model"], "mock");
  EXPECT_EQ(body["prompt"], (std::vector<int>{4, 5}));
  EXPECT_EQ(server.num_connections(), 1);
}

// C03: 100 tokens in any number of chunks, with any use of usage.
TEST(OpenAiTransport, TokensAreTheServersHoweverTheyAreCut) {
  enum class Usage { kLast, kEach, kMissing };
  for (const Usage usage : {Usage::kLast, Usage::kEach, Usage::kMissing}) {
    for (const int num_chunks : {1, 10, 25, 100}) {
      const MockHttpServer server([&](const MockRequest& request, MockPeer& peer) {
        if (request.line == "POST /tokenize HTTP/1.1") {  // a byte is a token
          const std::string text = nlohmann::json::parse(request.body)["prompt"];
          return peer.send(
              response(200, "application/json", nlohmann::json{{"tokens", std::vector<int>(text.size())}}.dump()));
        }
        peer.send(kStreamHead);
        peer.send(event(R"({"choices":[{"index":0,"text":""}]})"));  // nothing in it yet
        for (int i = 1; i <= num_chunks; ++i) {
          auto data = nlohmann::json::parse(
              text_data(std::string(static_cast<std::size_t>(100 / num_chunks), 'x'), i == num_chunks ? "stop" : ""));
          if (usage == Usage::kEach) data["usage"] = {{"completion_tokens", 100 / num_chunks * i}};
          peer.send(event(data.dump()));
        }
        if (usage == Usage::kLast) peer.send(event(usage_data(5, 100)));
        peer.send(event("[DONE]") + std::string(kLastChunk));
      });
      const auto transport = transport_to(server);
      const auto answer = collect(*transport, {});
      const StreamEnd end = answer->wait();
      EXPECT_EQ(end.error, "") << end.message;
      EXPECT_EQ(end.output_tokens, 100);
      EXPECT_EQ(end.is_estimate, usage == Usage::kMissing);
      EXPECT_EQ(answer->text_bytes(), 100);
      EXPECT_EQ(answer->tokens(), usage == Usage::kEach ? 100 : 0);
    }
  }
}

TEST(OpenAiTransport, WithoutUsageAndATokenizerTheCountIsUnknown) {
  const MockHttpServer server([](const MockRequest& request, MockPeer& peer) {
    if (request.line != "POST /v1/completions HTTP/1.1") return peer.send(response(404, "text/plain", "no such path"));
    peer.send(std::string(kStreamHead) + event(text_data("word", "stop")) + event("[DONE]") + std::string(kLastChunk));
  });
  const auto transport = transport_to(server);
  const StreamEnd end = collect(*transport, {})->wait();
  EXPECT_EQ(end.error, "");
  EXPECT_FALSE(end.output_tokens);
  EXPECT_FALSE(end.is_estimate);
}

TEST(OpenAiTransport, AStreamCutAnywhereIsTheSame) {
  const std::string bytes = std::string(kStreamHead) + chunk(": hello\r\n\r\n") +
                            chunk("data: " + text_data("h\xC3\xA9")) + chunk("\n") +
                            chunk("\ndata: " + text_data("\xF0\x9F\x98\x80", "stop") + "\r\n\r\n") +
                            event(usage_data(1, 2)) + event("[DONE]") + std::string(kLastChunk);
  for (std::size_t piece = 1; piece < bytes.size(); piece += 1 + piece / 2) {
    const MockHttpServer server([&](const MockRequest&, MockPeer& peer) {
      for (std::size_t at = 0; at < bytes.size(); at += piece) {
        peer.send(std::string_view(bytes).substr(at, piece));
        if (piece > 20) std::this_thread::sleep_for(1ms);
      }
    });
    const auto transport = transport_to(server);
    const auto answer = collect(*transport, {});
    EXPECT_EQ(answer->wait().error, "") << answer->wait().message;
    EXPECT_EQ(answer->wait().output_tokens, 2);
    EXPECT_EQ(answer->text_bytes(), 7);
    EXPECT_EQ(answer->arrivals().size(), 3U);
  }
}

TEST(OpenAiTransport, EveryWayToEndABody) {
  const std::string body = "data: " + text_data("word", "stop") + "\n\ndata: [DONE]\n\n";
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n";
  const MockHttpServer server([&](const MockRequest& request, MockPeer& peer) {
    if (request.line == "POST /tokenize HTTP/1.1") return peer.send(response(404, "text/plain", ""));
    if (request.connection == 0)
      return peer.send(head + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    peer.send(head + "Connection: close\r\n\r\n" + body);
    peer.close();
  });
  const auto transport = transport_to(server);
  EXPECT_EQ(collect(*transport, {})->wait().error, "");
  EXPECT_EQ(server.num_connections(), 1);
  const auto first = std::make_unique<CollectedAnswer>();
  const auto second = std::make_unique<CollectedAnswer>();
  const auto calls = std::make_pair(transport->start({}, *first), transport->start({}, *second));
  EXPECT_EQ(first->wait().error, "");
  EXPECT_EQ(second->wait().error, "");
}

TEST(OpenAiTransport, ArrivalsAreTimedAsTheyCome) {
  const MockHttpServer server([](const MockRequest&, MockPeer& peer) {
    peer.send(std::string(kStreamHead) + event(text_data("a")));
    std::this_thread::sleep_for(50ms);
    peer.send(event(text_data("b", "stop")) + event(usage_data(1, 2)) + event("[DONE]"));
    std::this_thread::sleep_for(100ms);  // the end of the body is no part of the answer
    peer.send(kLastChunk);
  });
  const auto transport = transport_to(server);
  const auto answer = collect(*transport, {});
  ASSERT_EQ(answer->arrivals().size(), 3U);
  const auto& arrivals = answer->arrivals();
  EXPECT_GE(arrivals[1].at - arrivals[0].at, 40ms);
  EXPECT_EQ(answer->wait().at, arrivals[2].at);
  EXPECT_EQ(collect(*transport, {})->wait().error, "");
  EXPECT_EQ(server.num_connections(), 1);
}

TEST(OpenAiTransport, ConnectionsAreKeptAndOpenedAhead) {
  const MockHttpServer server([](const MockRequest& request, MockPeer& peer) {
    if (request.line == "POST /v1/completions HTTP/1.1") return answer_well(peer);
    peer.send(response(200, "application/json", R"({"data":[{"id":"mock"}]})"));
  });
  const auto transport = transport_to(server, 3);
  transport->model();
  for (int i = 0; i < 200 && server.num_connections() < 3; ++i) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(server.num_connections(), 3);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(collect(*transport, {})->wait().error, "");
  EXPECT_EQ(server.num_connections(), 3);
  EXPECT_EQ(server.num_requests(), 6);
}

// A connection that the server closed while it was idle is not a failure of the next request.
TEST(OpenAiTransport, AnIdleConnectionThatEndedIsNotUsedAgain) {
  const MockHttpServer server([](const MockRequest& request, MockPeer& peer) {
    answer_well(peer);
    if (request.connection == 0) peer.close();
  });
  const auto transport = transport_to(server);
  EXPECT_EQ(collect(*transport, {})->wait().error, "");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(collect(*transport, {})->wait().error, "");
  EXPECT_EQ(server.num_connections(), 2);
}

TEST(OpenAiTransport, BothFormsOfTokenize) {
  const auto tokenizer = [](const char* field) {
    return [field](const MockRequest& request, MockPeer& peer) {
      const std::string text = nlohmann::json::parse(request.body).value(field, "");
      peer.send(response(200, "application/json", nlohmann::json{{"tokens", std::vector<int>(text.size(), 8)}}.dump()));
    };
  };
  for (const char* field : {"prompt", "content"}) {
    const MockHttpServer server(tokenizer(field));
    const auto transport = transport_to(server);
    EXPECT_EQ(transport->tokenize("abc"), (std::vector<std::int32_t>{8, 8, 8}));
    EXPECT_EQ(transport->tokenize(""), std::vector<std::int32_t>());
    EXPECT_EQ(transport->tokenize("ab").size(), 2U);
    EXPECT_EQ(server.num_requests(), std::string(field) == "prompt" ? 3 : 4);
  }
}

TEST(OpenAiTransport, WhatIsAskedBeforeTheLoadFailsInWords) {
  const auto words_of = [](const auto& ask) -> std::string {
    try {
      ask();
    } catch (const std::runtime_error& failure) {
      return failure.what();
    }
    return "it did not fail";
  };
  const MockHttpServer server([](const MockRequest& request, MockPeer& peer) {
    if (request.connection == 1) return peer.send(response(200, "application/json", R"({"data":[]})"));
    peer.send(response(401, "application/json", R"({"error":{"message":"a key is wanted"}})"));
    peer.close();
  });
  const auto transport = transport_to(server);
  EXPECT_THAT(words_of([&] { transport->model(); }),
              AllOf(HasSubstr("127.0.0.1:"), HasSubstr(": GET /v1/models: HTTP 401: a key is wanted")));
  EXPECT_THAT(words_of([&] { transport->model(); }), HasSubstr("names no model"));
  EXPECT_THAT(words_of([&] { transport->tokenize("a"); }), HasSubstr("POST /tokenize: "));
  client::Connection nobody;
  nobody.address = "127.0.0.1:1";
  EXPECT_THAT(words_of([&] { make_openai_transport(nobody, 1)->model(); }),
              AllOf(HasSubstr("Connection refused"), HasSubstr("--http-port is 8080"), HasSubstr("another address: ")));
  nobody.address = "nobody.invalid:80";
  EXPECT_THAT(words_of([&] { make_openai_transport(nobody, 1); }),
              HasSubstr("no server at nobody.invalid:80: no such host"));
  nobody.address = "https://localhost:1";
  nobody.tls_ca = "/no/such/file.pem";
  EXPECT_THAT(words_of([&] { make_openai_transport(nobody, 1); }), HasSubstr("--tls-ca /no/such/file.pem: "));
  nobody.tls_ca.clear();
  nobody.api_key = "a\r\nb";
  EXPECT_THAT(words_of([&] { make_openai_transport(nobody, 1); }), HasSubstr("--api-key"));
}

// Each is told with its own exit code and what to do.
TEST(OpenAiTransport, APortOfAnotherKindIsGuessed) {
  const auto failure_of = [](const auto& call) -> std::pair<int, std::string> {
    try {
      call();
    } catch (const client::CommandError& failure) {
      return {failure.exit_code(), failure.what()};
    }
    return {0, ""};
  };
  const MockHttpServer grpc([](const MockRequest&, MockPeer& peer) {
    peer.send(std::string("\0\0\x06\4\0\0\0\0\0", 9));  // how HTTP/2 begins
    peer.close();
  });
  const auto no_http = failure_of([&] { transport_to(grpc)->model(); });
  EXPECT_EQ(no_http.first, client::kExitNoServer);
  EXPECT_THAT(no_http.second, HasSubstr("it may speak gRPC (without --api openai)"));
  client::Connection connection;
  connection.address = "nobody.invalid:80";
  EXPECT_EQ(failure_of([&] { make_openai_transport(connection, 1); }).first, client::kExitNoServer);
  connection.address = "nobody";
  EXPECT_EQ(failure_of([&] { make_openai_transport(connection, 1); }).first, client::kExitUsage);
}

TEST(OpenAiTransport, ItsOwnLagIsMeasured) {
  const MockHttpServer server([](const MockRequest&, MockPeer& peer) { answer_well(peer); });
  const auto transport = transport_to(server);
  for (int i = 0; i < 200 && transport->read_lags_ms().size() < 3; ++i) std::this_thread::sleep_for(20ms);
  ASSERT_GE(transport->read_lags_ms().size(), 3U);
  for (const double lag : transport->read_lags_ms()) EXPECT_GE(lag, 0);
}

TEST(OpenAiTransport, ManyStreamsAtOnce) {
  constexpr int kStreams = 300;
  std::atomic<int> waiting{0};
  const MockHttpServer server([&](const MockRequest&, MockPeer& peer) {
    peer.send(std::string(kStreamHead) + event(text_data("a")));
    waiting.fetch_add(1);
    for (int i = 0; i < 1000 && waiting.load() < kStreams; ++i) std::this_thread::sleep_for(5ms);
    peer.send(event(text_data("b", "stop")) + event(usage_data(1, 2)) + event("[DONE]") + std::string(kLastChunk));
  });
  const auto transport = transport_to(server);
  std::vector<std::unique_ptr<CollectedAnswer>> answers;
  std::vector<std::unique_ptr<client::Call>> calls;
  for (int i = 0; i < kStreams; ++i) {
    answers.push_back(std::make_unique<CollectedAnswer>());
    calls.push_back(transport->start({}, *answers.back()));
  }
  for (const auto& answer : answers) {
    EXPECT_EQ(answer->wait().error, "") << answer->wait().message;
    EXPECT_EQ(answer->wait().output_tokens, 2);
  }
  EXPECT_EQ(server.num_requests(), kStreams);
}

}  // namespace
}  // namespace folio::test
