// The HTTP front in process: a real listener on a free port, a real engine over a scripted model ("a" -> "bcd...").
#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "server/http/http_listener.h"
#include "tests/server/front_fixture.h"
#include "tests/server/http/raw_client.h"

namespace folio::test {

class HttpTest : public FrontTest {
 protected:
  using json = nlohmann::json;

  // Starts a listener; `options_` may be changed before.
  void start() { listener_ = std::make_unique<HttpListener>(options_); }
  void serve() {
    if (!listener_) start();
    listener_->serve(generation_);
    listener_->set_serving(true);
  }
  void TearDown() override {
    FrontTest::TearDown();
    if (listener_) listener_->shutdown(clock_.now() + std::chrono::seconds(1));
    // The last references may still be on their way out of the worker, whose job in progress counts, and the
    // dispatcher: here the listener goes first (in a server the worker does).
    EXPECT_TRUE(
        eventually([this] { return generation_.num_live_calls() == 0 && generation_.num_waiting_inputs() == 0; }));
  }

  int port() const { return listener_->port(); }
  RawResponse ask(const std::string& request, bool has_body = true) {
    RawClient client(port());
    client.send(request);
    return client.read(has_body);
  }
  static std::string completion(const std::string& more = "") {
    return R"({"prompt": "a", "temperature": 0)" + more + "}";
  }
  RawResponse complete(const std::string& more) { return ask(post("/v1/completions", completion(more))); }
  static json error_of(const RawResponse& response) {
    EXPECT_EQ(response.fields.at("content-type"), "application/json");
    const json body = json::parse(response.body, nullptr, false);
    return body.is_object() && body.contains("error") ? body["error"] : json();
  }
  // The joined text of a stream's only choice.
  static std::string joined_text(const RawResponse& response) {
    std::string out;
    for (const std::string& event : events_of(response.body)) {
      if (event == "[DONE]") continue;
      for (const json& choice : json::parse(event).value("choices", json::array())) out += choice["text"];
    }
    return out;
  }
  template <class Condition>
  bool eventually(const Condition& condition, std::chrono::seconds limit = std::chrono::seconds(5)) {
    const TimePoint end = clock_.now() + limit;
    while (!condition() && clock_.now() < end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }
  bool idle() {
    const LoadSnapshot load = engine_.load();
    return load.num_running == 0 && load.num_waiting == 0 && generation_.num_live_calls() == 0;
  }

  HttpOptions options_;
  std::unique_ptr<HttpListener> listener_;
};

}  // namespace folio::test
