// Clients that go away, read slowly or not at all, and the server's own end.
#include <atomic>

#include "tests/server/http/http_fixture.h"

namespace folio::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

class HttpEnds : public HttpTest {
 protected:
  void SetUp() override { options_.limits.write_timeout = milliseconds(300); }

  // As long as the context lets it be, a token a step that the test allows.
  std::string endless(bool stream) {
    return post("/v1/completions",
                completion(std::string(R"(,"max_tokens": 500)") + (stream ? R"(,"stream": true)" : "")));
  }
  // Allows steps until so many requests run in one.
  bool running(int count) {
    return eventually([&] {
      model_.allow(1);
      std::this_thread::sleep_for(milliseconds(2));
      return engine_.load().num_running == count;
    });
  }
};

// A01 in its three states: while streaming, while waiting for a whole answer, in the queue.
TEST_F(HttpEnds, ClosedInEveryState) {
  serve();
  for (const bool stream : {true, false}) {
    for (const bool reset : {true, false}) {
      SCOPED_TRACE(std::string(stream ? "stream" : "whole") + (reset ? ", reset" : ", closed"));
      model_.hold();
      RawClient client(port());
      client.send(endless(stream));
      model_.allow(1);
      if (stream) client.read_until("\"text\":\"b");
      ASSERT_TRUE(running(1));
      reset ? client.reset() : client.close();
      // Steps that are allowed one by one: at the next one it is seen, not at the end of the answer.
      EXPECT_TRUE(eventually([this] {
        model_.allow(1);
        std::this_thread::sleep_for(milliseconds(5));
        return idle();
      }));
      EXPECT_LT(engine_.load().output_tokens, 200);
      model_.release();
    }
  }
}

TEST_F(HttpEnds, ClosedWhileItWaitsToBeTokenised) {
  serve();
  tokenizer_.hold(true);
  RawClient first(port());
  first.send(endless(false));
  tokenizer_.wait_until_encoding();
  {
    RawClient second(port());
    second.send(endless(false));
    EXPECT_TRUE(eventually([this] { return generation_.num_waiting_inputs() == 2; }));
  }
  EXPECT_TRUE(eventually([&] { return generation_.num_live_calls() >= 2; }));
  std::this_thread::sleep_for(milliseconds(20));
  const auto before = engine_.load().num_steps;
  first.close();
  std::this_thread::sleep_for(milliseconds(20));
  tokenizer_.hold(false);
  EXPECT_TRUE(eventually([this] { return idle(); }));
  EXPECT_EQ(engine_.load().num_steps, before);
}

TEST_F(HttpEnds, AHalfCloseIsNoCancel) {
  serve();
  for (const bool stream : {true, false}) {
    model_.hold();
    RawClient client(port());
    client.send(
        post("/v1/completions", completion(std::string(R"(,"max_tokens": 3)") + (stream ? R"(,"stream": true)" : ""))));
    model_.allow(1);
    client.half_close();
    std::this_thread::sleep_for(milliseconds(50));  // it is asked whether it is there
    model_.release();
    RawResponse response = client.read();
    if (response.status == 100) response = client.read();
    ASSERT_EQ(response.status, 200);
    EXPECT_EQ(stream ? joined_text(response) : json::parse(response.body)["choices"][0]["text"].get<std::string>(),
              "bcd");
  }
}

// A02: what nobody reads stays in the stream, and other callers do not feel it.
TEST_F(HttpEnds, AReaderThatStopsIsEnded) {
  std::atomic<int> num_ended{0};
  options_.on_write_timeout = [&num_ended] { ++num_ended; };
  serve();
  const std::string request =
      post("/v1/completions", completion(R"(,"max_tokens": 500, "n": 8, "logprobs": 20, "stream": true)"));
  RawClient sleeper(port(), 2048);
  sleeper.send(request);
  const TimePoint start = clock_.now();
  EXPECT_TRUE(eventually([this] { return generation_.num_live_calls() == 1; }));
  EXPECT_TRUE(eventually([this] { return generation_.num_live_calls() == 0; }, seconds(20)));
  EXPECT_GE(clock_.now() - start, milliseconds(300));
  EXPECT_EQ(complete("").status, 200);
  EXPECT_FALSE(sleeper.read_until("[DONE]").ends_with("[DONE]"));
  EXPECT_EQ(num_ended.load(), 1);
}

TEST_F(HttpEnds, AReaderThatIsOnlySlowGetsEverything) {
  options_.limits.write_timeout = seconds(60);
  serve();
  const std::string more = R"(,"max_tokens": 100, "logprobs": 20)";
  const std::string whole = json::parse(complete(more).body)["choices"][0]["text"];
  RawClient slow(port(), 2048);
  slow.send(post("/v1/completions", completion(more + R"(,"stream": true)")));
  std::this_thread::sleep_for(milliseconds(300));  // the answer is made long before
  EXPECT_EQ(complete("").status, 200);
  EXPECT_EQ(joined_text(slow.read()), whole);
}

TEST_F(HttpEnds, AnAbortHasAStatusOrAnEvent) {
  serve();
  model_.hold();
  RawClient whole(port());
  whole.send(endless(false));
  RawClient stream(port());
  stream.send(endless(true));
  ASSERT_TRUE(running(2));
  stream.read_until("\"text\":\"b");
  engine_.cancel(1);
  engine_.cancel(2);
  model_.release();
  EXPECT_EQ(whole.read().status, 499);
  const std::string rest = stream.read_until("[DONE]");
  EXPECT_THAT(rest, HasSubstr(R"("finish_reason":"abort")"));
  EXPECT_THAT(rest, HasSubstr(R"(data: {"error":)"));
}

// Nothing was made, so there is nothing to read but the status: who may try elsewhere has to see that it may.
TEST_F(HttpEnds, AStreamThatIsEndedInTheQueueHasAStatus) {
  serve();
  model_.hold();
  std::vector<std::unique_ptr<RawClient>> running_ones;
  for (int count = 1; count <= 8; ++count) {
    running_ones.push_back(std::make_unique<RawClient>(port()));
    running_ones.back()->send(endless(false));
    ASSERT_TRUE(running(count));
  }
  const auto waiting = [this](int count) {
    return eventually([this, count] {
      model_.allow(1);
      std::this_thread::sleep_for(milliseconds(2));
      return engine_.load().num_waiting == count;
    });
  };
  RawClient aborted(port());
  aborted.send(endless(true));
  ASSERT_TRUE(waiting(1));
  RawClient drained(port());
  drained.send(post("/v1/completions", completion(R"(,"max_tokens": 500, "stream": true, "echo": true)")));
  ASSERT_TRUE(waiting(2));
  engine_.cancel(9);
  model_.allow(1);
  EXPECT_EQ(aborted.read().status, 499);
  engine_.end_all({ErrorCode::kUnavailable, "the server is shutting down"});
  model_.release();
  const RawResponse response = drained.read();
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(error_of(response)["code"], "service_unavailable");
}

// A03, the listener's part of it.
TEST_F(HttpEnds, ShutdownWithEverythingOpen) {
  serve();
  RawClient idle(port());
  idle.send(get("/health"));
  EXPECT_EQ(idle.read().status, 200);
  RawClient half(port());
  half.send("GET /health HTTP/1.1\r\nHo");
  model_.hold();
  RawClient stream(port());
  stream.send(endless(true));
  model_.allow(2);
  stream.read_until("\"text\":\"b");
  RawClient unread(port(), 2048);
  unread.send(endless(true));

  const TimePoint start = clock_.now();
  listener_->shutdown(start + milliseconds(300));
  EXPECT_LT(clock_.now() - start, seconds(2));
  EXPECT_TRUE(idle.at_end());
  model_.release();
  EXPECT_TRUE(eventually([this] { return generation_.num_live_calls() == 0; }));
}

TEST_F(HttpEnds, ShutdownLetsAnAnswerEnd) {
  serve();
  model_.hold();
  RawClient client(port());
  client.send(post("/v1/completions", completion(R"(,"max_tokens": 400)")));
  ASSERT_TRUE(running(1));
  std::thread release([this] {
    std::this_thread::sleep_for(milliseconds(50));
    model_.release();
  });
  listener_->shutdown(clock_.now() + seconds(5));
  release.join();
  const RawResponse response = client.read();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.fields.at("connection"), "close");
  EXPECT_TRUE(client.at_end());
}

TEST_F(HttpEnds, APortIsNeverShared) {
  start();
  HttpOptions second;
  second.port = static_cast<std::uint16_t>(port());
  try {
    const HttpListener listener(second);
    FAIL() << "two listeners on one port";
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(port()) + ": Address already in use"));
  }
  listener_->shutdown(clock_.now());
  const HttpListener again(second);
  EXPECT_EQ(again.port(), second.port);
  HttpOptions bad;
  bad.host = "no.such.host.invalid";
  EXPECT_THROW(HttpListener{bad}, std::runtime_error);
}

}  // namespace
}  // namespace folio::test
