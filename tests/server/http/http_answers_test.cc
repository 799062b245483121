// What each call answers.
#include "tests/server/http/http_fixture.h"

namespace folio::test {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class HttpAnswers : public HttpTest {
 protected:
  void SetUp() override { serve(); }
};

TEST_F(HttpAnswers, AWholeCompletion) {
  const RawResponse response = complete(R"(,"max_tokens": 3)");
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(response.fields.at("content-type"), "application/json");
  EXPECT_TRUE(response.fields.contains("date"));
  const json body = json::parse(response.body);
  EXPECT_THAT(body["id"].get<std::string>(), MatchesRegex("cmpl-[0-9a-f]{8}-[0-9]+"));
  EXPECT_EQ(body["model"], "tiny");
  EXPECT_EQ(body["choices"][0]["text"], "bcd");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(body["usage"]["total_tokens"], 4);
}

TEST_F(HttpAnswers, TheDefaultLimitOfACompletion) {
  EXPECT_EQ(json::parse(complete("").body)["usage"]["completion_tokens"], 16);
}

TEST_F(HttpAnswers, AStreamJoinsToTheWhole) {
  for (const char* more : {R"(,"max_tokens": 1)", R"(,"max_tokens": 17)", R"(,"max_tokens": 20, "stop": "jk")"}) {
    const json whole = json::parse(complete(more).body);
    const RawResponse stream =
        complete(std::string(more) + R"(,"stream": true, "stream_options": {"include_usage": true})");
    ASSERT_EQ(stream.status, 200);
    EXPECT_TRUE(stream.chunked);
    EXPECT_EQ(stream.fields.at("content-type"), "text/event-stream; charset=utf-8");
    EXPECT_EQ(joined_text(stream), whole["choices"][0]["text"]);
    const auto events = events_of(stream.body);
    ASSERT_GE(events.size(), 3U);
    EXPECT_EQ(events.back(), "[DONE]");
    const json usage = json::parse(events[events.size() - 2]);
    EXPECT_EQ(usage["choices"], json::array());
    EXPECT_EQ(usage["usage"]["completion_tokens"], whole["usage"]["completion_tokens"]);
    int num_finished = 0;
    for (std::size_t i = 0; i + 2 < events.size(); ++i) {
      const json event = json::parse(events[i]);
      EXPECT_EQ(event["id"], usage["id"]);
      EXPECT_EQ(event["created"], usage["created"]);
      EXPECT_EQ(event["usage"], nullptr);
      const json& finish = event["choices"][0]["finish_reason"];
      if (finish.is_null()) continue;
      ++num_finished;
      EXPECT_EQ(finish, whole["choices"][0]["finish_reason"]);
      EXPECT_EQ(i, events.size() - 3);
    }
    EXPECT_EQ(num_finished, 1);
  }
}

TEST_F(HttpAnswers, SeveralChoices) {
  const std::string body = R"({"prompt": "a", "max_tokens": 4, "n": 3, "seed": 1)";
  const json whole = json::parse(ask(post("/v1/completions", body + "}")).body);
  ASSERT_EQ(whole["choices"].size(), 3U);
  const RawResponse stream = ask(post("/v1/completions", body + R"(,"stream": true})"));
  std::map<int, std::string> texts;
  for (const std::string& event : events_of(stream.body)) {
    if (event == "[DONE]") continue;
    const json choice = json::parse(event)["choices"][0];
    texts[choice["index"]] += choice["text"];
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(texts[i], whole["choices"][i]["text"]);
}

TEST_F(HttpAnswers, EchoAndItsLogprobs) {
  const std::string more = R"(,"max_tokens": 2, "echo": true, "logprobs": 1)";
  const json whole = json::parse(complete(more).body)["choices"][0];
  EXPECT_EQ(whole["text"], "abc");
  EXPECT_EQ(whole["logprobs"]["tokens"], json::parse(R"(["a", "b", "c"])"));
  EXPECT_EQ(whole["logprobs"]["token_logprobs"][0], nullptr);
  EXPECT_EQ(whole["logprobs"]["top_logprobs"][0], nullptr);
  EXPECT_EQ(whole["logprobs"]["text_offset"], json::parse("[0, 1, 2]"));
  json joined = {{"tokens", json::array()}, {"token_logprobs", json::array()}};
  const RawResponse stream = complete(more + R"(,"stream": true)");
  EXPECT_EQ(joined_text(stream), "abc");
  for (const std::string& event : events_of(stream.body)) {
    if (event == "[DONE]") continue;
    const json logprobs = json::parse(event)["choices"][0]["logprobs"];
    for (auto& [key, list] : joined.items()) list.insert(list.end(), logprobs[key].begin(), logprobs[key].end());
  }
  EXPECT_EQ(joined["tokens"], whole["logprobs"]["tokens"]);
  EXPECT_EQ(joined["token_logprobs"], whole["logprobs"]["token_logprobs"]);
}

TEST_F(HttpAnswers, APromptIsScored) {
  const std::string more = R"(,"max_tokens": 0, "prompt_logprobs": 2)";
  const json whole = json::parse(complete(more).body);
  EXPECT_EQ(whole["usage"]["completion_tokens"], 0);
  EXPECT_EQ(whole["choices"][0]["text"], "");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  ASSERT_EQ(whole["prompt_logprobs"].size(), 1U);
  EXPECT_EQ(whole["prompt_logprobs"][0]["token"], "a");
  EXPECT_EQ(whole["prompt_logprobs"][0]["logprob"], nullptr);
  const auto events = events_of(complete(more + R"(,"stream": true)").body);
  EXPECT_EQ(json::parse(events.at(0))["prompt_logprobs"], whole["prompt_logprobs"]);
  EXPECT_EQ(json::parse(events.at(0))["choices"], json::array());
  EXPECT_EQ(error_of(complete(R"(,"echo": true, "logprobs": 1, "prompt_logprobs": 1)"))["param"], "prompt_logprobs");
  EXPECT_EQ(error_of(complete(R"(,"echo": true, "logprobs": 1, "n": 2)"))["param"], "n");
}

// S02: a limit in the middle of a character.
TEST_F(HttpAnswers, HalfACharacterAtTheEnd) {
  const std::string more = R"(,"max_tokens": 2, "logit_bias": {"258": 1000})";
  const json whole = json::parse(complete(more).body);
  EXPECT_EQ(whole["choices"][0]["text"], "\uFFFD\uFFFD");
  EXPECT_EQ(whole["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(whole["usage"]["completion_tokens"], 2);
  EXPECT_EQ(joined_text(complete(more + R"(,"stream": true)")), "\uFFFD\uFFFD");
}

// A10: text that looks like an event of the stream.
TEST_F(HttpAnswers, TextCannotForgeAnEvent) {
  const RawResponse stream = complete(R"(,"max_tokens": 30, "logit_bias": {"10": 1000}, "stream": true)");
  EXPECT_EQ(joined_text(stream), std::string(30, '\n'));
}

TEST_F(HttpAnswers, SeveralOnOneConnection) {
  RawClient client(port());
  for (int i = 1; i <= 3; ++i) {
    client.send(post("/v1/completions", completion(R"(,"stream": true, "max_tokens": )" + std::to_string(i))));
    const RawResponse response = client.read();
    ASSERT_EQ(response.status, 200);
    EXPECT_EQ(joined_text(response), std::string("bcd").substr(0, static_cast<std::size_t>(i)));
    client.send(get("/health"));
    EXPECT_EQ(client.read().status, 200);
  }
}

TEST_F(HttpAnswers, Models) {
  const json list = json::parse(ask(get("/v1/models")).body);
  EXPECT_EQ(list["object"], "list");
  EXPECT_EQ(list["data"][0]["id"], "tiny");
  EXPECT_EQ(list["data"][0]["max_model_len"], 512);
  EXPECT_EQ(json::parse(ask(get("/v1/models/tiny")).body)["id"], "tiny");
  EXPECT_EQ(json::parse(ask(get("/v1/models/%74iny")).body)["id"], "tiny");
  const RawResponse other = ask(get("/v1/models/gpt%0d%0aX-Evil:%201"));
  EXPECT_EQ(other.status, 404);
  EXPECT_EQ(error_of(other)["code"], "model_not_found");
  EXPECT_FALSE(other.fields.contains("x-evil"));
}

TEST_F(HttpAnswers, Tokens) {
  const json tokens = json::parse(ask(post("/tokenize", R"({"prompt": "h\u00e9", "return_token_strs": true})")).body);
  EXPECT_EQ(tokens["tokens"], json::parse("[104, 195, 169]"));
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(tokens["max_model_len"], 512);
  EXPECT_EQ(tokens["token_strs"], json::parse(R"(["h", "\ufffd", "\ufffd"])"));
  EXPECT_EQ(json::parse(ask(post("/tokenize", R"({"prompt": ""})")).body)["tokens"], json::array());
  const json special = json::parse(
      ask(post("/tokenize", R"({"prompt": "<|im_end|>", "parse_special": true, "add_special_tokens": true})")).body);
  EXPECT_EQ(special["tokens"], json::parse("[256, 257]"));
  EXPECT_EQ(json::parse(ask(post("/detokenize", R"({"tokens": [104, 105]})")).body)["prompt"], "hi");
  const json with_special =
      json::parse(ask(post("/detokenize", R"({"tokens": [104, 257], "skip_special_tokens": false})")).body);
  EXPECT_EQ(with_special["prompt"], "h<|im_end|>");
}

TEST_F(HttpAnswers, TokenCallsRefuseByName) {
  const std::pair<std::string, const char*> cases[] = {
      {post("/tokenize", "{}"), "prompt"},
      {post("/tokenize", R"({"prompt": 5})"), "prompt"},
      {post("/tokenize", R"({"prompt": "a", "x": 1})"), "x"},
      {post("/tokenize", R"({"prompt": "a", "model": "gpt"})"), "model"},
      {post("/detokenize", R"({"tokens": "a"})"), "tokens"},
      {post("/detokenize", R"({"tokens": [999]})"), "tokens[0]"},
      {post("/detokenize", R"({"tokens": [1, -1]})"), "tokens[1]"},
      {post("/tokenize", R"({"messages": []})"), "messages"},
  };
  for (const auto& [request, param] : cases) {
    const RawResponse response = ask(request);
    EXPECT_EQ(response.status, std::string(param) == "model" ? 404 : 400);
    EXPECT_EQ(error_of(response)["param"], param) << request;
  }
}

TEST_F(HttpAnswers, RefusalsNameTheField) {
  const struct {
    const char* more;
    int status;
    json param;
  } cases[] = {
      {R"(,"temperature": 101)", 400, "temperature"},
      {R"(,"top_p": 0)", 400, "top_p"},
      {R"(,"n": 9)", 400, "n"},
      {R"(,"logprobs": 21)", 400, "logprobs"},
      {R"(,"min_tokens": 17)", 400, "min_tokens"},
      {R"(,"stop": [""])", 400, "stop[0]"},
      {R"(,"logit_bias": {"9999": 1})", 400, "logit_bias"},
      {R"(,"stop_token_ids": [-1])", 400, "stop_token_ids[0]"},
      {R"(,"model": "gpt\r\nX-Evil: 1")", 404, "model"},
      {R"(,"tenant": 5)", 400, "tenant"},
  };
  for (const auto& c : cases) {
    for (const char* stream : {"", R"(,"stream": true)"}) {
      const std::string body = R"({"prompt": "a")" + std::string(c.more) + stream + "}";
      const RawResponse response = ask(post("/v1/completions", body));
      EXPECT_EQ(response.status, c.status) << body;
      EXPECT_EQ(error_of(response)["param"], c.param) << body;
      EXPECT_FALSE(response.fields.contains("x-evil"));
    }
  }
  const RawResponse too_long = ask(post("/v1/completions", R"({"prompt": ")" + std::string(600, 'x') + R"("})"));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(error_of(too_long)["param"], "prompt");
  EXPECT_EQ(error_of(too_long)["code"], "context_length_exceeded");
}

// The name that is complained of is the one that was sent, not what a field of folio.v1 of that name is called here.
TEST_F(HttpAnswers, AnUnknownFieldKeepsItsName) {
  const std::string messages = R"({"messages": [{"role": "user", "content": "hi"}], )";
  for (const std::string field : {"prompt", "template_args"}) {
    for (const char* path : {"/v1/chat/completions", "/tokenize"}) {
      if (field == "prompt" && path == std::string("/tokenize")) continue;  // there it is a field
      const RawResponse response = ask(post(path, messages + "\"" + field + "\": \"x\"}"));
      EXPECT_EQ(response.status, 400);
      EXPECT_EQ(error_of(response)["param"], field) << path;
    }
  }
}

TEST_F(HttpAnswers, BodiesThatAreNoRequest) {
  const std::string bodies[] = {"",
                                "{",
                                "[]",
                                "null",
                                "{\"prompt\": \"\xE6\xAD\"}",
                                "\xEF\xBB\xBF{}",
                                "{\"prompt\": \"\\ud83d\"}",
                                std::string(100'000, '['),
                                std::string("\0", 1)};
  for (const std::string& body : bodies) {
    for (const char* path : {"/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"}) {
      const RawResponse response = ask(post(path, body));
      EXPECT_EQ(response.status, 400) << path << " " << body.substr(0, 40);
      EXPECT_TRUE(error_of(response)["message"].is_string());
      EXPECT_LT(response.body.size(), 1000U);
    }
  }
}

TEST_F(HttpAnswers, ChatWithoutATemplate) {
  const RawResponse response =
      ask(post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "hi"}]})"));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(error_of(response)["code"], "no_chat_template");
}

TEST_F(HttpAnswers, HeadHasTheLengthAndNoBody) {
  RawClient client(port());
  client.send(get("/v1/models", "", "HEAD"));
  const RawResponse head = client.read(false);
  client.send(get("/v1/models"));
  const RawResponse whole = client.read();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.fields.at("content-length"), std::to_string(whole.body.size()));
}

TEST_F(HttpAnswers, PathsAndMethods) {
  for (const char* path : {"/", "/v1", "/v1/completions/", "//v1/completions", "/V1/completions", "/%761/completions",
                           "/v1/../v1/completions", "/metrics", "/health/", "/v1/embeddings"}) {
    const RawResponse response = ask(get(path));
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(error_of(response)["code"], "not_found");
  }
  for (const char* method : {"GET", "HEAD", "PUT", "DELETE", "PATCH", "BREW"}) {
    const RawResponse response = ask(get("/v1/completions", "", method), std::string(method) != "HEAD");
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(response.fields.at("allow"), "POST, OPTIONS");
  }
  EXPECT_EQ(ask(post("/health", "{}")).status, 405);
  EXPECT_EQ(ask(get("/health?probe=1")).status, 200);
  const RawResponse options = ask(get("/v1/completions", "", "OPTIONS"));
  EXPECT_EQ(options.status, 204);
  EXPECT_EQ(options.fields.at("allow"), "POST, OPTIONS");
}

TEST_F(HttpAnswers, MediaTypes) {
  const auto status = [this](const std::string& fields) {
    return ask("POST /tokenize HTTP/1.1\r\nHost: h\r\n" + fields + "Content-Length: 15\r\n\r\n{\"prompt\": \"a\"}")
        .status;
  };
  EXPECT_EQ(status("Content-Type: application/json\r\n"), 200);
  EXPECT_EQ(status("Content-Type: Application/JSON ; charset=utf-8\r\n"), 200);
  EXPECT_EQ(status(""), 415);
  EXPECT_EQ(status("Content-Type: text/plain\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  EXPECT_EQ(status("Content-Type: application/json\r\nContent-Encoding: gzip\r\n"), 415);
}

TEST_F(HttpAnswers, TheCallersLabelComesBack) {
  EXPECT_EQ(ask(get("/health", "X-Request-Id: mine-1\r\n")).fields.at("x-request-id"), "mine-1");
  EXPECT_FALSE(ask(get("/health", "X-Request-Id: not mine\r\n")).fields.contains("x-request-id"));
}

TEST_F(HttpAnswers, AFullQueue) {
  model_.hold();
  std::vector<std::unique_ptr<RawClient>> clients;
  // 8 places and 4 that wait, each answer larger than a step; the others are refused at once.
  for (int i = 0; i < 40; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    clients.back()->send(post("/v1/completions", completion(R"(,"max_tokens": 20)")));
  }
  EXPECT_TRUE(eventually([this] { return generation_.num_live_calls() <= 12; }));
  EXPECT_EQ(ask(get("/health")).status, 200);
  model_.release();
  int num_served = 0;
  for (const auto& client : clients) {
    const RawResponse response = client->read();
    num_served += response.status == 200 ? 1 : 0;
    if (response.status == 200) continue;
    EXPECT_EQ(response.status, 429);
    EXPECT_GE(std::stoi(response.fields.at("retry-after")), 1);
    EXPECT_EQ(error_of(response)["code"], "rate_limit_exceeded");
  }
  EXPECT_GE(num_served, 4);
  EXPECT_LT(num_served, 40);
}

TEST_F(HttpAnswers, ATimeLimitBeforeTheFirstToken) {
  model_.hold();
  RawClient client(port());
  client.send(post("/v1/completions", completion(R"(,"time_limit_ms": 20, "stream": true)")));
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  model_.allow(1);
  const RawResponse response = client.read();
  // The step that ran when the time was up may have given a token: then the answer ends with it.
  EXPECT_TRUE(response.status == 504 || response.status == 200) << response.status;
}

TEST_F(HttpAnswers, AFailedStepIsAnErrorInTheStream) {
  model_.hold();
  RawClient client(port());
  client.send(post("/v1/completions", completion(R"(,"max_tokens": 50, "stream": true)")));
  model_.allow(2);
  client.read_until("\"text\":\"b");
  engine_.end_all({ErrorCode::kInternal, "a step failed"});
  model_.release();
  const std::string rest = client.read_until("0\r\n\r\n");
  EXPECT_THAT(rest, HasSubstr(R"(data: {"error":{"message":"a step failed")"));
  EXPECT_THAT(rest, HasSubstr("data: [DONE]"));
}

TEST_F(HttpAnswers, Metrics) {
  listener_->shutdown(clock_.now());
  start();
  EXPECT_EQ(ask(get("/metrics")).status, 503);
  listener_->serve(generation_, [] { return std::string("folio_up 1\n"); });
  const RawResponse response = ask(get("/metrics"));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body, "folio_up 1\n");
  EXPECT_THAT(response.fields.at("content-type"), HasSubstr("version=0.0.4"));
}

class HttpLoading : public HttpTest {};

TEST_F(HttpLoading, HealthAndReadyFromStartToEnd) {
  start();
  EXPECT_EQ(ask(get("/health")).status, 200);
  const RawResponse loading = ask(get("/ready"));
  EXPECT_EQ(loading.status, 503);
  EXPECT_THAT(error_of(loading)["message"].get<std::string>(), HasSubstr("loading"));
  for (const std::string& request :
       {post("/v1/completions", completion()), get("/v1/models"), post("/tokenize", "{}")}) {
    const RawResponse response = ask(request);
    EXPECT_EQ(response.status, 503);
    EXPECT_TRUE(response.fields.contains("retry-after"));
  }
  serve();
  EXPECT_EQ(ask(get("/ready")).status, 200);
  listener_->set_serving(false);
  engine_.stop_accepting();
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_THAT(error_of(ask(get("/ready")))["message"].get<std::string>(), HasSubstr("shutting down"));
  EXPECT_EQ(complete("").status, 503);
}

}  // namespace
}  // namespace folio::test
