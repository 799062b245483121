// What a connection does under clients that are slow, hasty, wrong or many.
#include "tests/server/http/http_fixture.h"

namespace folio::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

class HttpConnections : public HttpTest {
 protected:
  void serve_with(const std::function<void(HttpLimits&)>& change) {
    change(options_.limits);
    serve();
  }
};

TEST_F(HttpConnections, RequestsInOnePacketAreAnsweredInOrder) {
  serve();
  RawClient client(port());
  std::string requests;
  for (int i = 1; i <= 5; ++i) {
    requests += post("/v1/completions",
                     completion(R"(,"max_tokens": )" + std::to_string(i) + (i % 2 ? R"(,"stream": true)" : "")));
    requests += get("/health");
  }
  client.send(requests);
  for (int i = 1; i <= 5; ++i) {
    const RawResponse answer = client.read();
    ASSERT_EQ(answer.status, 200);
    const std::string text =
        i % 2 ? joined_text(answer) : json::parse(answer.body)["choices"][0]["text"].get<std::string>();
    EXPECT_EQ(text, std::string("bcdef").substr(0, static_cast<std::size_t>(i)));
    EXPECT_EQ(client.read().body, R"({"status":"ok"})");
  }
}

TEST_F(HttpConnections, ARequestByteByByte) {
  serve();
  RawClient client(port());
  for (const char byte : post("/v1/completions", completion(R"(,"max_tokens": 1)"))) client.send({&byte, 1});
  EXPECT_EQ(client.read().status, 200);
}

TEST_F(HttpConnections, EmptyLinesBetweenRequests) {
  serve();
  RawClient client(port());
  const std::string request = post("/v1/completions", completion(R"(,"max_tokens": 1)"));
  client.send("\r\n\r\n" + request + "\r\n" + request + "\r\n");
  EXPECT_EQ(client.read().status, 200);
  EXPECT_EQ(client.read().status, 200);
  client.send("\r");
  std::this_thread::sleep_for(milliseconds(20));
  client.send("\n" + get("/health"));
  EXPECT_EQ(client.read().status, 200);
  RawClient leaves(port());
  leaves.send("\r");
  leaves.half_close();
  EXPECT_TRUE(leaves.at_end());
}

TEST_F(HttpConnections, ATrailerLongerThanTheLibraryTakes) {
  serve();
  RawClient client(port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "0\r\nX: " +
      std::string(70'000, 'x') + "\r\n\r\n");
  EXPECT_EQ(client.read().status, 400);
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpConnections, ChunkedBodies) {
  serve();
  RawClient client(port());
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: "
      "chunked\r\n\r\n";
  const std::string body = completion(R"(,"max_tokens": 1)");
  std::string chunks;
  for (const char byte : body) chunks += "1\r\n" + std::string(1, byte) + "\r\n";
  client.send(head + chunks + "0\r\n\r\n");
  EXPECT_EQ(client.read().status, 200);
  client.send(head + "zz\r\n");
  EXPECT_EQ(client.read().status, 400);
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpConnections, AChunkLineWithoutEnd) {
  serve();
  RawClient client(port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1;" +
      std::string(200'000, 'x'));
  EXPECT_EQ(client.read().status, 400);
}

TEST_F(HttpConnections, AChunkedBodyWithoutEnd) {
  serve_with([](HttpLimits& limits) { limits.max_body_bytes = 100'000; });
  RawClient client(port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "1000\r\n" + std::string(4096, ' ') + "\r\n";
  for (int i = 0; i < 30; ++i) client.send(chunk);
  EXPECT_EQ(client.read().status, 413);
}

TEST_F(HttpConnections, ALongBodyIsRefusedBeforeItComes) {
  serve();
  RawClient client(port());
  client.send(
      "POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 104857600\r\n\r\n");
  const RawResponse response = client.read();
  EXPECT_EQ(response.status, 413);
  EXPECT_THAT(error_of(response)["message"].get<std::string>(), HasSubstr("16777216"));
  EXPECT_EQ(response.fields.at("connection"), "close");
}

TEST_F(HttpConnections, TheAnswerToARefusedBodyArrivesWhileItIsSent) {
  serve();
  RawClient client(port());
  // The body is as long as it says, and nobody wants it: it must not cost the client the answer.
  client.send(post("/no/such/path", std::string(4U << 20U, ' ')));
  EXPECT_EQ(client.read().status, 404);
}

TEST_F(HttpConnections, ALargeBodyIsTaken) {
  serve();
  EXPECT_EQ(ask(post("/tokenize", R"({"prompt": "a")" + std::string(4U << 20U, ' ') + "}")).status, 200);
  // A text in it is more than one worker may be kept with.
  const RawResponse response = ask(post("/tokenize", R"({"prompt": ")" + std::string(4U << 20U, 'x') + R"("})"));
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(error_of(response)["message"], "prompt: 4194304 bytes of text are over the limit of 1048576");
}

TEST_F(HttpConnections, ExpectContinue) {
  serve();
  RawClient client(port());
  const std::string body = R"({"prompt": "a"})";
  const std::string fields =
      "Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: " + std::to_string(body.size()) +
      "\r\n\r\n";
  client.send("POST /tokenize HTTP/1.1\r\nHost: h\r\n" + fields);
  EXPECT_EQ(client.read().status, 100);
  client.send(body);
  EXPECT_EQ(client.read().status, 200);
  // A refusal comes instead of it.
  client.send("POST /nowhere HTTP/1.1\r\nHost: h\r\n" + fields);
  EXPECT_EQ(client.read().status, 404);
}

TEST_F(HttpConnections, HttpOneDotZero) {
  serve();
  RawClient client(port());
  const std::string body = completion(R"(,"max_tokens": 4, "stream": true)");
  client.send("POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const RawResponse response = client.read();
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.chunked);
  EXPECT_EQ(joined_text(response), "bcde");
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpConnections, GarbageGetsOneAnswerAndTheEnd) {
  serve();
  for (const std::string& bytes :
       {std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), std::string("\r\n\r\nhello\r\n\r\n"),
        get("/health", "X: " + std::string(1U << 20U, 'x') + "\r\n"), std::string("GET / HTTP/1.1\r\n\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")}) {
    RawClient client(port());
    client.send(bytes);
    EXPECT_GE(client.read().status, 400);
    EXPECT_TRUE(client.at_end());
  }
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(HttpConnections, AHeaderThatDoesNotEnd) {
  serve_with([](HttpLimits& limits) { limits.header_timeout = milliseconds(100); });
  RawClient client(port());
  const TimePoint start = clock_.now();
  client.send("GET /health HTTP/1.1\r\nHost: h\r\nX-Slow: ");
  const RawResponse response = client.read();
  EXPECT_EQ(response.status, 408);
  EXPECT_GE(clock_.now() - start, milliseconds(95));
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpConnections, ABodyThatDoesNotCome) {
  serve_with([](HttpLimits& limits) { limits.body_timeout = milliseconds(100); });
  RawClient slow(port());
  slow.send("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{");
  EXPECT_EQ(ask(get("/health")).status, 200);  // nobody else waits
  // A byte now and then is no help.
  const TimePoint start = clock_.now();
  std::thread drip([&slow, this, start] {
    while (clock_.now() - start < milliseconds(90)) {
      slow.send(" ");
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  EXPECT_EQ(slow.read().status, 408);
  drip.join();
}

TEST_F(HttpConnections, ABodyThatEndsEarly) {
  serve();
  RawClient client(port());
  client.send("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{");
  client.half_close();
  EXPECT_EQ(client.read().status, 400);
}

TEST_F(HttpConnections, IdleOnesAreClosed) {
  serve_with([](HttpLimits& limits) { limits.idle_timeout = milliseconds(300); });
  RawClient never(port());
  RawClient once(port());
  once.send(get("/health"));
  EXPECT_EQ(once.read().status, 200);
  EXPECT_TRUE(never.at_end());
  EXPECT_TRUE(once.at_end());
}

TEST_F(HttpConnections, TooManyBodiesAtOnce) {
  serve_with([](HttpLimits& limits) { limits.max_waiting_body_bytes = 1000; });
  RawClient first(port());
  first.send("POST /tokenize HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: 5000\r\n\r\n" +
             std::string(2000, ' '));
  const RawResponse response = first.read();
  EXPECT_EQ(response.status, 503);
  EXPECT_TRUE(response.fields.contains("retry-after"));
  EXPECT_EQ(ask(post("/tokenize", R"({"prompt": "a"})")).status, 200);
}

TEST_F(HttpConnections, AFullHouse) {
  serve_with([](HttpLimits& limits) { limits.max_connections = 2; });
  RawClient idle(port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.read().status, 200);
  RawClient busy(port());
  busy.send("GET /health HTTP/1.1\r\n");  // in the middle of its request
  std::this_thread::sleep_for(milliseconds(100));
  RawClient third(port());
  third.send("GET /health HTTP/1.1\r\n");
  EXPECT_TRUE(idle.at_end());  // the idle one made room
  std::this_thread::sleep_for(milliseconds(100));
  const RawResponse refused = ask(get("/health"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(error_of(refused)["code"], "too_many_connections");
  third.send("Host: h\r\n\r\n");
  EXPECT_EQ(third.read().status, 200);
  // It is idle now, and makes room in its turn.
  EXPECT_EQ(ask(get("/health")).status, 200);
}

// A14: idle connections and half requests stop nobody.
TEST_F(HttpConnections, ManyThatDoNothing) {
  serve();
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<RawClient>(port()));
    if (i % 3 == 0) clients.back()->send("GET /health HTTP/1.1\r\nHost:");
  }
  const TimePoint start = clock_.now();
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(complete("").status, 200);
  EXPECT_LT(clock_.now() - start, milliseconds(1000));
}

TEST_F(HttpConnections, AbruptEndsLeaveNothing) {
  serve();
  for (int i = 0; i < 60; ++i) {
    RawClient client(port());
    const std::string request = post("/v1/completions", completion(R"(,"max_tokens": 5, "stream": true)"));
    client.send(request.substr(0, request.size() * static_cast<std::size_t>(i) / 59));
    if (i % 2 == 0) client.reset();
  }
  EXPECT_TRUE(eventually([this] { return idle(); }));
  EXPECT_EQ(complete("").status, 200);
}

}  // namespace
}  // namespace folio::test
