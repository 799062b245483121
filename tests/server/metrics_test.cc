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
  const std::regex expression("\\bfolio_(?!cuda\\b)[a-z0-9_]+");  // folio_cuda is a target of the build
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
