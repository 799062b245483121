// What /metrics says, against what happened.
#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>

#include "tests/server/metrics_fixture.h"
#include "tests/support/allocations.h"

namespace folio::test {
namespace {

using std::chrono::milliseconds;

// finished_reason -> requests, refusal reason -> requests; those of none are left out.
std::map<std::string, double> nonzero(const Exposition& seen, const std::string& name, const std::string& label) {
  std::map<std::string, double> out;
  for (const auto& [sample, value] : seen.families().at(name).samples) {
    if (value != 0) out[sample.second.at(label)] = value;
  }
  return out;
}
std::map<std::string, double> ends(const Exposition& seen) {
  return nonzero(seen, "folio_request_success_total", "finished_reason");
}
std::map<std::string, double> refusals(const Exposition& seen) {
  return nonzero(seen, "folio_admission_rejections_total", "reason");
}
using Counts = std::map<std::string, double>;

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

TEST_F(MetricsTest, AServerThatHasDoneNothingHasEveryNameAtZero) {
  serve();
  const Exposition seen = scrape();
  for (const auto& [name, family] : seen.families()) {
    EXPECT_FALSE(family.help.empty()) << name;
    for (const auto& [sample, value] : family.samples) {
      EXPECT_EQ(sample.second.at("model_name"), "tiny") << name;
      const bool is_size = name == "folio_kv_blocks" || name == "folio_cache_config_info";
      if (!is_size) {
        EXPECT_EQ(value, 0) << sample.first;
      }
    }
  }
  EXPECT_EQ(seen.value("folio_kv_blocks", {{"state", "free"}}), 64);
  EXPECT_EQ(seen.sum("folio_kv_blocks"), 64);
  EXPECT_EQ(
      seen.value(
          "folio_cache_config_info",
          {{"block_size", "4"}, {"num_gpu_blocks", "64"}, {"cache_dtype", "f16"}, {"enable_prefix_caching", "True"}}),
      1);
  EXPECT_EQ(seen.sum("folio_step_duration_seconds_count"), 0);
}

// docs/api.md lists every name, and no other; docs/operations.md asks for none that is not there.
TEST_F(MetricsTest, TheManualListsTheNamesThatThereAre) {
  serve();
  const auto read = [](const char* path) {
    std::ifstream file(path);
    return std::string{std::istreambuf_iterator<char>(file), {}};
  };
  const std::string manual = read("docs/api.md");
  const std::regex row("\\n\\| `([a-z0-9_]+)(\\{[a-z_,]+\\})?` \\| (counter|gauge|histogram) \\|");
  std::map<std::string, std::string> listed;
  for (auto match = std::sregex_iterator(manual.begin(), manual.end(), row); match != std::sregex_iterator(); ++match) {
    listed["folio_" + (*match)[1].str()] = (*match)[3];
  }
  std::map<std::string, std::string> there;
  const Exposition seen = scrape();
  for (const auto& [name, family] : seen.families()) there[name] = family.type;
  EXPECT_EQ(listed, there);

  const std::string operations = read("docs/operations.md");
  const std::regex expression("folio_[a-z0-9_]+");
  int num_asked = 0;
  for (auto match = std::sregex_iterator(operations.begin(), operations.end(), expression);
       match != std::sregex_iterator(); ++match, ++num_asked) {
    const std::string name = std::regex_replace(match->str(), std::regex("_(bucket|sum|count)$"), "");
    EXPECT_TRUE(there.contains(name)) << match->str();
  }
  EXPECT_GT(num_asked, 10);
}

TEST_F(MetricsTest, OneRequestInNumbers) {
  serve();
  ASSERT_FALSE(run(request("abcdefghi", 5))->wait());
  const Exposition seen = scrape();
  EXPECT_EQ(ends(seen), (Counts{{"length", 1}}));
  EXPECT_EQ(seen.value("folio_prompt_tokens_total"), 9);
  EXPECT_EQ(seen.value("folio_prompt_tokens_computed_total"), 9);
  EXPECT_EQ(seen.value("folio_generation_tokens_total"), 5);
  EXPECT_EQ(seen.value("folio_engine_steps_total"), 5);
  const auto expect = [&](const std::string& name, double count, double sum) {
    EXPECT_EQ(seen.value("folio_" + name + "_count"), count) << name;
    EXPECT_NEAR(seen.value("folio_" + name + "_sum"), sum, 1e-12) << name;
  };
  expect("time_to_first_token_seconds", 1, 0.010);
  expect("inter_token_latency_seconds", 4, 0.040);
  expect("e2e_request_latency_seconds", 1, 0.050);
  expect("request_queue_time_seconds", 1, 0);
  expect("request_prefill_time_seconds", 1, 0.010);
  expect("request_decode_time_seconds", 1, 0.040);
  expect("request_prompt_tokens", 1, 9);
  expect("request_generation_tokens", 1, 5);
  EXPECT_EQ(seen.value("folio_step_duration_seconds_count", {{"phase", "forward"}}), 5);
  EXPECT_NEAR(seen.value("folio_step_duration_seconds_sum", {{"phase", "forward"}}), 0.050, 1e-12);
  for (const char* phase : {"schedule", "build", "sample", "commit"}) {
    EXPECT_EQ(seen.value("folio_step_duration_seconds_count", {{"phase", phase}}), 5);
    EXPECT_EQ(seen.value("folio_step_duration_seconds_sum", {{"phase", phase}}), 0);
  }
}

// A value on a bound is in that bound's bucket; milliseconds are told apart.
TEST_F(MetricsTest, BucketsTellMillisecondsApart) {
  EngineMeter meter;
  for (const int ms : {1, 2, 3, 5, 7, 10}) meter.on_next_token(milliseconds(ms));
  meter.on_next_token(std::chrono::hours(1));
  const Histogram& histogram = meter.inter_token_latency();
  const Histogram::Counts counts = histogram.read();
  std::map<double, std::uint64_t> filled;
  for (std::size_t i = 0; i < histogram.bounds().size(); ++i) {
    if (counts.buckets[i] > 0) filled[histogram.bounds()[i]] = counts.buckets[i];
  }
  EXPECT_EQ(filled,
            (std::map<double, std::uint64_t>{{0.001, 1}, {0.002, 1}, {0.003, 1}, {0.005, 1}, {0.0075, 1}, {0.01, 1}}));
  EXPECT_EQ(counts.buckets.back(), 1U);
  EXPECT_NEAR(counts.sum, 3600.028, 1e-9);
}

TEST_F(MetricsTest, CountingAllocatesNothing) {
  EngineMeter meter;
  const std::int64_t before = num_allocations();
  meter.on_step({});
  meter.on_first_token(milliseconds(3));
  meter.on_next_token(milliseconds(3));
  meter.on_end({});
  EXPECT_EQ(num_allocations(), before);
}

// ---- each end

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
  generation_->count_refusal(ErrorCode::kInvalidArgument);  // as a front does that cannot make a call of it

  tokenizer_.hold(true);
  const auto busy = start(this->request("a", 1));
  tokenizer_.wait_until_encoding();
  const auto gone = start(this->request("b", 1));
  gone->cancel();
  tokenizer_.hold(false);
  EXPECT_EQ(gone->wait()->code, ErrorCode::kCancelled);
  EXPECT_FALSE(busy->wait());

  const Exposition seen = scrape();
  EXPECT_EQ(refusals(seen), (Counts{{"invalid_argument", 3},
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

// ---- gauges

// While a step runs: what it began with, and what came since.
TEST_F(MetricsTest, GaugesAreRightInTheMiddleOfAStep) {
  serve();
  allow_steps(0);
  std::vector<std::shared_ptr<TestCall>> calls;
  calls.push_back(start(request("abcde", 3)));
  wait_until_a_step_waits();
  Exposition seen = scrape();
  EXPECT_EQ(seen.value("folio_num_requests_running"), 1);
  EXPECT_EQ(seen.value("folio_num_requests_waiting"), 0);
  EXPECT_EQ(seen.value("folio_kv_blocks", {{"state", "held"}}), 2);
  EXPECT_EQ(seen.sum("folio_kv_blocks"), 64);
  EXPECT_NEAR(seen.value("folio_kv_cache_usage_perc"), 2.0 / 64, 1e-12);
  for (int i = 0; i < 3; ++i) calls.push_back(start(request("abcde", 3)));
  wait_until_tokenised();
  seen = scrape();
  EXPECT_EQ(seen.value("folio_num_requests_running"), 1);
  EXPECT_EQ(seen.value("folio_num_requests_waiting"), 3);
  allow_steps(1);
  calls[0]->wait_for_tokens(1);
  wait_until_a_step_waits();  // the newcomers are in this one
  seen = scrape();
  EXPECT_EQ(seen.value("folio_num_requests_running") + seen.value("folio_num_requests_waiting"), 4);
  EXPECT_EQ(seen.sum("folio_kv_blocks"), 64);
  tokenizer_.hold(true);
  calls.push_back(start(request("x", 1)));
  tokenizer_.wait_until_encoding();
  EXPECT_EQ(scrape().value("folio_num_front_waiting"), 1);
  tokenizer_.hold(false);
  allow_steps(-1);
  for (const auto& call : calls) EXPECT_FALSE(call->wait());
  EXPECT_EQ(ends(scrape()), (Counts{{"length", 5}}));
}

TEST_F(MetricsTest, TheTimeInFrontOfTheTokenizerIsPartOfTheWait) {
  serve();
  tokenizer_.hold(true);
  const auto call = start(request("abc", 1));
  tokenizer_.wait_until_encoding();
  clock_.advance(milliseconds(400));
  tokenizer_.hold(false);
  EXPECT_FALSE(call->wait());
  const Exposition seen = scrape();
  EXPECT_NEAR(seen.value("folio_request_queue_time_seconds_sum"), 0.4, 1e-12);
  EXPECT_NEAR(seen.value("folio_time_to_first_token_seconds_sum"), 0.41, 1e-12);
  EXPECT_NEAR(seen.value("folio_e2e_request_latency_seconds_sum"), 0.41, 1e-12);
  EXPECT_EQ(call->whole().timings().ttft_ms(), 410);
}

TEST_F(MetricsTest, ThePrefixCacheCountsTokensAskedAndFound) {
  serve();
  run(request("abcdefghij", 1));
  const auto second = run(request("abcdefghij", 1));
  auto bypass = request("abcdefghij", 1);
  bypass.mutable_cache()->set_bypass(true);
  run(bypass);
  const Exposition seen = scrape();
  EXPECT_EQ(seen.value("folio_prefix_cache_queries_total"), 20) << "who bypasses the cache asks it nothing";
  EXPECT_EQ(seen.value("folio_prefix_cache_hits_total"), second->whole().usage().cached_tokens());
  EXPECT_GE(seen.value("folio_prefix_cache_hits_total"), 8);
  EXPECT_EQ(seen.value("folio_prompt_tokens_total"), 30);
  EXPECT_EQ(seen.value("folio_prompt_tokens_computed_total") + seen.value("folio_prefix_cache_hits_total"), 30);
}

// ---- names

TEST_F(MetricsTest, AModelNameMayHaveAnyCharacter) {
  metrics_options_.model_name = "a\"b\\c\nd{e}=,\xC3\xA9\\n";
  serve();
  run(request("a", 1));
  const Exposition seen = scrape();
  for (const auto& [name, family] : seen.families()) {
    for (const auto& [sample, value] : family.samples) {
      EXPECT_EQ(sample.second.at("model_name"), metrics_options_.model_name) << name;
    }
  }
}

// The names that vLLM's dashboards and the gateways of Kubernetes ask for.
TEST_F(MetricsTest, ThePrefixMakesTheNamesOfVllm) {
  serve();
  metrics_options_.prefix = "vllm:";
  const Metrics metrics(*engine_, *generation_, metrics_options_);
  run(request("a", 2));
  const Exposition seen(metrics.text());
  for (const char* name : {"num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info",
                           "prefix_cache_queries_total", "prefix_cache_hits_total", "num_preemptions_total",
                           "prompt_tokens_total", "generation_tokens_total", "request_success_total",
                           "time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds",
                           "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
                           "request_prompt_tokens", "request_generation_tokens"}) {
    EXPECT_TRUE(seen.families().contains(std::string("vllm:") + name)) << name;
  }
  for (const auto& [name, family] : seen.families()) EXPECT_TRUE(name.starts_with("vllm:")) << name;
  EXPECT_EQ(seen.value("vllm:request_success_total", {{"finished_reason", "length"}}), 1);
}

TEST(ExpositionParser, RefusesWhatIsNotWrittenRight) {
  const std::string head = "# HELP a_total x\n# TYPE a_total counter\n";
  EXPECT_NO_THROW(Exposition(head + "a_total{l=\"v\"} 1\n"));
  for (const char* wrong : {"a_total 1", "a_total -1\n", "a_total one\n", "a_total 1 \n", "b_total 1\n",
                            "a_total{l=\"v} 1\n", "a_total{l=\"\\t\"} 1\n", "a_total 1\na_total 1\n", ""}) {
    EXPECT_THROW(Exposition(head + wrong), std::runtime_error) << wrong;
  }
  const std::string histogram = "# HELP h x\n# TYPE h histogram\n";
  EXPECT_NO_THROW(Exposition(histogram + "h_count 2\nh_sum 3\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\n"));
  for (const char* wrong : {"h_count 2\nh_sum 3\nh_bucket{le=\"1\"} 2\n",
                            "h_count 3\nh_sum 3\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\n",
                            "h_count 1\nh_sum 3\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\n",
                            "h_sum 3\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\n"}) {
    EXPECT_THROW(Exposition(histogram + wrong), std::runtime_error) << wrong;
  }
}

}  // namespace
}  // namespace folio::test
