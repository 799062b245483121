#include "client/load_test/openai_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

namespace folio::client {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(HttpAddressTest, HostAndPortOrAUrl) {
  struct Case {
    std::string text;
    bool has_ca, tls;
    std::string host, port, prefix, authority;
  };
  const std::vector<Case> cases = {
      {"127.0.0.1:8080", false, false, "127.0.0.1", "8080", "", "127.0.0.1:8080"},
      {"localhost:80", false, false, "localhost", "80", "", "localhost"},
      {"localhost:8443", true, true, "localhost", "8443", "", "localhost:8443"},
      {"[::1]:8080", false, false, "::1", "8080", "", "[::1]:8080"},
      {"http://host", false, false, "host", "80", "", "host"},
      {"https://host", false, true, "host", "443", "", "host"},
      {"https://host:80/", true, true, "host", "80", "", "host:80"},
      {"http://host:8000/v1", false, false, "host", "8000", "", "host:8000"},
      {"http://host:8000/openai/v1/", false, false, "host", "8000", "/openai", "host:8000"},
      {"http://[::1]/api", false, false, "::1", "80", "/api", "[::1]"},
  };
  for (const Case& sample : cases) {
    const HttpAddress got = parse_http_address(sample.text, sample.has_ca);
    EXPECT_EQ(got.tls, sample.tls) << sample.text;
    EXPECT_EQ(got.host, sample.host) << sample.text;
    EXPECT_EQ(got.port, sample.port) << sample.text;
    EXPECT_EQ(got.prefix, sample.prefix) << sample.text;
    EXPECT_EQ(got.authority(), sample.authority) << sample.text;
  }
  for (const char* text : {"", "host", "host:", ":80", "host:0", "host:65536", "host:8x", "::1:80", "[::1]",
                           "[::1]80:80", "[::1:80", "ftp://host", "http://", "http://user@host/", "host:80/path",
                           "a b:80", "http://host/a?b", "http://host/\r\nX: y"}) {
    EXPECT_THROW(parse_http_address(text, false), std::runtime_error) << text;
  }
  EXPECT_THROW(parse_http_address("http://host:80", true), std::runtime_error);
}

TEST(OpenAiWire, ARequestAsksForNoMoreThanItsSpec) {
  RequestSpec spec;
  spec.prompt = {1, 2, 3};
  spec.max_tokens = 7;
  spec.temperature = 0;
  spec.ignore_eos = false;
  EXPECT_EQ(json::parse(completion_body(spec, "m")),
            json::parse(R"({"model":"m","prompt":[1,2,3],"max_tokens":7,"temperature":0.0,"stream":true,
                            "stream_options":{"include_usage":true}})"));
  spec.prompt.clear();
  spec.text = "h\xC3\xA9\xFF";
  spec.ignore_eos = true;
  spec.n = 2;
  spec.top_p = 0.5F;
  spec.top_k = 40;
  spec.seed = 0x8000'0000'0000'0005;
  spec.tenant = "t";
  spec.stop = {"\n", "end"};
  EXPECT_EQ(json::parse(completion_body(spec, "")),
            json::parse(R"({"prompt":"hé�","max_tokens":7,"temperature":0.0,"stream":true,
                            "stream_options":{"include_usage":true},"ignore_eos":true,"n":2,"top_p":0.5,"top_k":40,
                            "seed":5,"tenant":"t","stop":["\n","end"]})"));
}

TEST(OpenAiWire, RequestsAsBytes) {
  const HttpAddress address = parse_http_address("http://host:8000/x/v1", false);
  EXPECT_EQ(http_request(address, "", "/v1/models", ""),
            "GET /x/v1/models HTTP/1.1\r\nHost: host:8000\r\nUser-Agent: folio-client\r\nAccept: */*\r\n\r\n");
  EXPECT_EQ(http_request(address, "k", "/tokenize", "{}"),
            "POST /x/tokenize HTTP/1.1\r\nHost: host:8000\r\nUser-Agent: folio-client\r\nAccept: */*\r\n"
            "Authorization: Bearer k\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}");
}

TEST(OpenAiWire, WhatServersSayOfThemselves) {
  const auto ours = parse_models(R"({"object":"list","data":[{"id":"a","max_model_len":8192},{"id":"b"}]})");
  ASSERT_TRUE(ours);
  EXPECT_EQ(ours->name, "a");
  EXPECT_EQ(ours->max_context, 8192);
  EXPECT_EQ(ours->vocab_size, 0);
  const auto llama = parse_models(R"({"data":[{"id":"a","meta":{"n_vocab":32000,"n_ctx_train":4096}}]})");
  ASSERT_TRUE(llama);
  EXPECT_EQ(llama->vocab_size, 32000);
  EXPECT_EQ(llama->max_context, 4096);
  for (const char* body : {"", "[]", "{", R"({"data":[]})", R"({"data":[{"id":""}]})", R"({"data":{"id":"a"}})"}) {
    EXPECT_FALSE(parse_models(body)) << body;
  }
  EXPECT_EQ(parse_tokens(R"({"count":2,"tokens":[5,6]})"), (std::vector<std::int32_t>{5, 6}));
  for (const char* body : {"", R"({"tokens":5})", R"({"tokens":["a"]})", R"([1])"}) {
    EXPECT_FALSE(parse_tokens(body)) << body;
  }
}

TEST(OpenAiWire, WordsOfEveryFormOfError) {
  EXPECT_EQ(error_words(R"({"error":{"message":"too\nlong","code":400}})"), "too long");
  EXPECT_EQ(error_words(R"({"error":"words"})"), "words");
  EXPECT_EQ(error_words(R"({"object":"error","message":"old","code":40301})"), "old");
  EXPECT_EQ(error_words(R"({"detail":[{"loc":["n"]}]})"), R"([{"loc":["n"]}])");
  EXPECT_EQ(error_words("<html>\r\n  Bad\tGateway\x1b[0m</html>\n"), "<html> Bad Gateway[0m</html>");
  EXPECT_EQ(error_words("caf\xE9 \xC2\x9B"
                        "2J"),
            "caf\xEF\xBF\xBD 2J");
  EXPECT_EQ(error_words(""), "");
  // Written as it is: not by a library that calls itself for each level.
  const std::string deep = R"({"error":)" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}";
  EXPECT_EQ(error_words(deep), deep.substr(0, 200));
  const std::string cut = error_words(std::string(199, 'a') + "\xC3\xA9");
  EXPECT_EQ(cut, std::string(199, 'a'));
}

// C03: where usage is told in every event, tokens have their times; else they are unknown until the end.
TEST(AnswerReaderTest, TokensOfUsage) {
  AnswerReader last(1);
  EXPECT_EQ(last.read({"", R"({"choices":[{"text":"ab"}],"usage":null})"})->tokens, 0);
  EXPECT_EQ(last.read({"", R"({"choices":[{"text":"","finish_reason":"length"}]})"})->text_bytes, 0);
  const auto usage = last.read(
      {"",
       R"({"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":100,"prompt_tokens_details":{"cached_tokens":2}}})"});
  EXPECT_EQ(usage->tokens, 0);
  EXPECT_EQ(usage->text_bytes, 0);
  EXPECT_FALSE(last.read({"", "[DONE]"}));
  EXPECT_TRUE(last.is_done());
  EXPECT_EQ(last.end().error, "");
  EXPECT_EQ(last.end().output_tokens, 100);
  EXPECT_EQ(last.end().prompt_tokens, 3);
  EXPECT_EQ(last.end().cached_tokens, 2);
  EXPECT_TRUE(last.texts_without_usage().empty());

  AnswerReader each(1);
  EXPECT_EQ(each.read({"", R"({"choices":[{"text":"a"}],"usage":{"completion_tokens":2}})"})->tokens, 2);
  EXPECT_EQ(each.read({"", R"({"choices":[{"text":""}],"usage":{"completion_tokens":5}})"})->tokens, 3);
  EXPECT_EQ(each.read({"", R"({"choices":[{"text":"b"}],"usage":{"completion_tokens":6}})"})->tokens, 1);
  EXPECT_EQ(each.read({"", R"({"choices":[],"usage":{"completion_tokens":6}})"})->tokens, 0);
  EXPECT_EQ(each.end().output_tokens, 6);

  // Once, with the last text: that is not when all of them came.
  AnswerReader late(1);
  EXPECT_EQ(late.read({"", R"({"choices":[{"text":"a"}]})"})->tokens, 0);
  EXPECT_EQ(late.read({"", R"({"choices":[{"text":"b"}],"usage":{"completion_tokens":2}})"})->tokens, 0);
  EXPECT_EQ(late.end().output_tokens, 2);
}

TEST(AnswerReaderTest, ItsTextsWithoutUsage) {
  AnswerReader answer(2);
  answer.read({"", R"({"choices":[{"index":1,"text":"x"},{"index":0,"text":"a"}]})"});
  answer.read({"", R"({"choices":[{"index":1,"text":"y","finish_reason":"stop"}]})"});
  EXPECT_EQ(answer.texts_without_usage(), (std::vector<std::string>{"a", "xy"}));
}

struct EndCase {
  std::vector<SseEvent> events;
  int n;
  std::string error, message;
};

TEST(AnswerReaderTest, EveryEndByItsName) {
  const SseEvent token = {"", R"({"choices":[{"index":0,"text":"a","finish_reason":null}]})"};
  const SseEvent stop = {"", R"({"choices":[{"index":0,"text":"","finish_reason":"stop"}]})"};
  const SseEvent failed = {"", R"({"error":{"message":"out of blocks","code":500}})"};
  const SseEvent done = {"", "[DONE]"};
  const auto finish = [](const char* reason) {
    return SseEvent{"", json{{"choices", {{{"index", 0}, {"text", ""}, {"finish_reason", reason}}}}}.dump()};
  };
  const std::vector<EndCase> cases = {
      {{token, stop, done}, 1, "", ""},
      {{token, finish("length"), done}, 1, "", ""},
      {{token, finish("eos_token"), done}, 1, "", ""},
      {{done}, 1, "", ""},  // empty: nothing came
      {{token, stop}, 1, "no end", "the stream ended without [DONE]"},
      {{}, 1, "no end", "the stream ended without [DONE]"},
      {{failed, done}, 1, "error event", "out of blocks"},
      {{token, failed}, 1, "error event", "out of blocks"},
      {{token, stop, failed, done}, 1, "error event", "out of blocks"},
      {{failed, {"", R"({"error":"second"})"}}, 1, "error event", "out of blocks"},
      {{{"error", "plain words"}}, 1, "error event", "plain words"},
      {{{"", R"({"object":"error","message":"old form"})"}}, 1, "error event", "old form"},
      {{token, finish("error"), done}, 1, "finish error", "ended by the server"},
      {{token, finish("abort"), done}, 1, "finish abort", "ended by the server"},
      {{token, done}, 1, "no finish", "an output without a finish_reason"},
      {{token, stop, done}, 2, "no finish", "1 outputs of 2"},
      {{{"", "{\"a\":"}, done}, 1, "bad answer", "an event that is no JSON object: {\"a\":"},
      {{{"", "7"}, done}, 1, "bad answer", "an event that is no JSON object: 7"},
      {{{"", R"({"choices":[{"index":99999999,"text":"a"}]})"}, done}, 1, "bad answer", "choices.index: 99999999"},
  };
  for (const EndCase& sample : cases) {
    AnswerReader answer(sample.n);
    for (const SseEvent& event : sample.events) answer.read(event);
    std::string shown;
    for (const SseEvent& event : sample.events) shown += event.data + " ";
    EXPECT_EQ(answer.end().error, sample.error) << shown;
    EXPECT_EQ(answer.end().message, sample.message) << shown;
  }
}

TEST(AnswerReaderTest, OddButHarmlessEventsAreNoContent) {
  AnswerReader answer(1);
  for (const char* data : {"{}", R"({"choices":null})", R"({"choices":[null,5,{"text":null}]})", R"({"usage":{}})",
                           R"({"error":null,"choices":[{"delta":{"role":"assistant"}}]})",
                           R"({"usage":{"completion_tokens":"x","prompt_tokens_details":null}})"}) {
    const auto arrival = answer.read({"", data});
    ASSERT_TRUE(arrival) << data;
    EXPECT_EQ(arrival->tokens + arrival->text_bytes, 0) << data;
  }
}

TEST(OpenAiWire, AnswersThatAreNoStream) {
  EXPECT_EQ(not_a_stream({503, "application/json", ""}, R"({"error":{"message":"full"}})").error, "HTTP 503");
  EXPECT_EQ(not_a_stream({503, "application/json", ""}, R"({"error":{"message":"full"}})").message, "full");
  EXPECT_EQ(not_a_stream({200, "application/json", ""}, R"({"error":{"message":"full"}})").error, "error body");
  EXPECT_EQ(not_a_stream({200, "application/json", ""}, R"({"error":{"message":"full"}})").message, "full");
  EXPECT_EQ(not_a_stream({200, "application/json", ""}, R"({"choices":[]})").error, "not a stream");
  EXPECT_THAT(not_a_stream({200, "text/html", ""}, "<p>").message, HasSubstr("text/html"));
}

}  // namespace
}  // namespace folio::client
