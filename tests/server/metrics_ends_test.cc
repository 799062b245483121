// Each request that comes is counted once, by how it ended or why it was refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/server/metrics_fixture.h"

namespace folio::test {
namespace {

// A call whose front cannot read its own bytes.
class BrokenCall final : public GenerationCall {
 public:
  explicit BrokenCall(Generation& generation) : GenerationCall(generation, kNoDeadline) {}
  std::atomic<bool> ended = false;

 private:
  Result<GenerationInput> parse() override { throw std::runtime_error("no memory for it"); }
  void deliver() override {
    v1::GenerateChunk chunk;
    if (next(chunk) == Next::kEnd) ended = true;
  }
};

TEST_F(MetricsTest, AStopIsAStop) {
  serve();
  auto stops = request("a", 50);
  run(stops);
  const std::int32_t id = run(stops)->whole().outputs(0).tokens(3);
  stops.mutable_stopping()->add_stop_token_ids(id);
  EXPECT_EQ(run(stops)->whole().outputs(0).finish_reason(), v1::FINISH_REASON_STOP_TOKEN);
  EXPECT_EQ(ends(scrape()), (Counts{{"length", 2}, {"stop", 1}}));
}

TEST_F(MetricsTest, AnAbortIsAnAbort) {
  serve();
  allow_steps(2);
  const auto call = start(request("a", 50));
  call->wait_for_tokens(2);
  call->cancel();
  allow_steps(1);
  EXPECT_EQ(call->wait()->code, ErrorCode::kCancelled);
  const Exposition seen = scrape();
  EXPECT_EQ(ends(seen), (Counts{{"abort", 1}}));
  EXPECT_EQ(seen.value("folio_generation_tokens_total"), call->whole().outputs(0).tokens_size());
}

TEST_F(MetricsTest, ADeadlineIsADeadlineBeforeAndAfterTheFirstToken) {
  serve();
  auto late = request("a", 50);
  late.set_time_limit_ms(35);
  EXPECT_FALSE(run(late)->wait());
  EXPECT_EQ(ends(scrape()), (Counts{{"deadline", 1}}));
  allow_steps(0);
  const auto busy = start(request("b", 3));
  wait_until_a_step_waits();
  late.set_time_limit_ms(5);  // it is accepted, and waits for the step
  const auto call = start(late);
  wait_until_tokenised();
  allow_steps(-1);
  EXPECT_EQ(call->wait()->code, ErrorCode::kDeadlineExceeded);
  EXPECT_FALSE(busy->wait());
  const Exposition seen = scrape();
  EXPECT_EQ(ends(seen), (Counts{{"deadline", 2}, {"length", 1}}));
  EXPECT_EQ(refusals(seen), Counts());
}

TEST_F(MetricsTest, AFailedStepIsAnError) {
  serve();
  fail_every(1);
  EXPECT_EQ(run(request("a", 50))->wait()->code, ErrorCode::kInternal);
  const Exposition seen = scrape();
  EXPECT_EQ(ends(seen), (Counts{{"error", 1}}));
  EXPECT_EQ(seen.value("folio_prompt_tokens_total"), 0) << "it gave no token";
  EXPECT_EQ(seen.value("folio_request_prefill_time_seconds_count"), 0);
  EXPECT_EQ(seen.value("folio_e2e_request_latency_seconds_count"), 1);
}

TEST_F(MetricsTest, ADrainThatTimedOutIsAShutdown) {
  serve();
  allow_steps(1);
  const auto call = start(request("a", 50));
  call->wait_for_tokens(1);
  engine_->stop_accepting();
  EXPECT_EQ(run(request("b", 5))->wait()->code, ErrorCode::kUnavailable);
  engine_->end_all({ErrorCode::kUnavailable, "the server is shutting down"});
  allow_steps(-1);
  EXPECT_EQ(call->wait()->code, ErrorCode::kUnavailable);
  EXPECT_EQ(ends(scrape()), (Counts{{"shutdown", 1}}));
  EXPECT_EQ(refusals(scrape()), (Counts{{"unavailable", 1}}));
}

TEST_F(MetricsTest, SeveralAnswersAreOneRequest) {
  serve();
  auto request = this->request("abc", 6);
  request.set_n(3);
  EXPECT_FALSE(run(request)->wait());
  const Exposition seen = scrape();
  EXPECT_EQ(ends(seen), (Counts{{"length", 1}}));
  EXPECT_EQ(seen.value("folio_prompt_tokens_total"), 3);
  EXPECT_EQ(seen.value("folio_generation_tokens_total"), 18);
  EXPECT_EQ(seen.value("folio_time_to_first_token_seconds_count"), 1);
  EXPECT_EQ(seen.value("folio_inter_token_latency_seconds_count"), 15);
  EXPECT_EQ(seen.value("folio_request_generation_tokens_sum"), 18);
}

// ---- each refusal

TEST_F(MetricsTest, EveryRefusalIsCountedByItsCode) {
  serve();
  auto request = this->request("a", 5);
  request.mutable_sampling()->set_top_p(0);
  EXPECT_EQ(run(request)->wait()->code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(run(this->request(std::string(300, 'a'), 5))->wait()->code, ErrorCode::kInvalidArgument);  // the context
  request = this->request("a", 5);
  request.set_model("another");
  EXPECT_EQ(run(request)->wait()->code, ErrorCode::kNotFound);
  v1::ChatRequest chat;
  chat.add_messages()->set_role("user");
  EXPECT_EQ(run(chat)->wait()->code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(run(this->request("a", 5), clock_.now())->wait()->code, ErrorCode::kDeadlineExceeded);
  const auto broken = std::make_shared<BrokenCall>(*generation_);
  generation_->start(broken, 1);
  while (!broken->ended) std::this_thread::yield();
  generation_->count_refusal(ErrorCode::kUnauthenticated);  // as a front does that makes no call of it
  request = this->request("a", 5);
  request.set_tenant("others");
  Caller caller;
  caller.tenant = "mine";
  EXPECT_EQ(run(request, kNoDeadline, caller)->wait()->code, ErrorCode::kPermissionDenied);

  tokenizer_.hold(true);
  const auto busy = start(this->request("a", 1));
  tokenizer_.wait_until_encoding();
  const auto gone = start(this->request("b", 1));
  gone->cancel();
  tokenizer_.hold(false);
  EXPECT_EQ(gone->wait()->code, ErrorCode::kCancelled);
  EXPECT_FALSE(busy->wait());

  const Exposition seen = scrape();
  EXPECT_EQ(refusals(seen), (Counts{{"invalid_argument", 2},
                                    {"unauthenticated", 1},
                                    {"permission_denied", 1},
                                    {"not_found", 1},
                                    {"failed_precondition", 1},
                                    {"deadline_exceeded", 1},
                                    {"internal", 1},
                                    {"cancelled", 1}}));
  EXPECT_EQ(ends(seen), (Counts{{"length", 1}}));
}

TEST_F(MetricsTest, AFullQueueAndAFullInboxAreTheSameRefusal) {
  serve();
  allow_steps(0);
  std::vector<std::shared_ptr<TestCall>> calls;
  for (int i = 0; i < 20; ++i) calls.push_back(start(request("a", 1)));
  wait_until_tokenised();
  tokenizer_.hold(true);
  for (int i = 0; i < 80; ++i) calls.push_back(start(request("a", 1)));
  tokenizer_.hold(false);
  wait_until_tokenised();
  allow_steps(-1);
  double refused = 0;
  for (const auto& call : calls) refused += call->wait() ? 1 : 0;
  EXPECT_GE(refused, 80);
  EXPECT_EQ(refusals(scrape()), (Counts{{"resource_exhausted", refused}}));
  EXPECT_EQ(ends(scrape()), (Counts{{"length", 100 - refused}}));
}

// The scheduler knows that there is no time for it: it was accepted, and is refused all the same.
TEST_F(MetricsTest, ALateRefusalIsARefusalAndNoEnd) {
  serve();
  ASSERT_FALSE(run(request("a", 40))->wait());  // now the server knows what a step takes
  auto late = request("b", 5);
  late.set_time_limit_ms(2);
  EXPECT_EQ(run(late)->wait()->code, ErrorCode::kDeadlineExceeded);
  const Exposition seen = scrape();
  EXPECT_EQ(refusals(seen), (Counts{{"deadline_exceeded", 1}}));
  EXPECT_EQ(ends(seen), (Counts{{"length", 1}}));
  EXPECT_EQ(seen.value("folio_e2e_request_latency_seconds_count"), 1);
}

}  // namespace
}  // namespace folio::test
