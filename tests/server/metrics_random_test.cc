// Many requests at once, with cancels, deadlines, failing steps and refusals, and somebody who scrapes meanwhile: at
// the end every sum is what the streams saw. Also run under the thread sanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/server/metrics_fixture.h"

namespace folio::test {
namespace {

// What the callers know.
struct Seen {
  std::map<std::string, double> ends;  // by finished_reason and by refusal's code, together
  double generation_tokens = 0, prompt_tokens = 0, cached_tokens = 0, preemptions = 0;
  double gave_token = 0, gaps = 0;
  double untold = 0;  // requests that ended in an error before anything was sent
};

std::string end_of(const v1::GenerateResponse& whole) {
  std::string worst = "stop";
  for (const v1::Output& output : whole.outputs()) {
    if (output.finish_reason() == v1::FINISH_REASON_DEADLINE) return "deadline";
    if (output.finish_reason() == v1::FINISH_REASON_LENGTH) worst = "length";
  }
  return worst;
}

void add(TestCall& call, Seen& seen) {
  const auto error = call.wait();
  const v1::GenerateResponse whole = call.whole();
  ++seen.ends[error ? std::string(name_of(error->code)) : end_of(whole)];
  double tokens = 0;
  for (const v1::Output& output : whole.outputs()) {
    tokens += output.tokens_size();
    seen.gaps += std::max(0, output.tokens_size() - 1);
  }
  EXPECT_EQ(whole.usage().output_tokens(), tokens);
  seen.generation_tokens += tokens;
  seen.untold += whole.has_usage() ? 0 : 1;
  seen.cached_tokens += static_cast<double>(whole.usage().cached_tokens());
  seen.preemptions += whole.timings().num_preemptions();
  if (tokens == 0) return;
  ++seen.gave_token;
  seen.prompt_tokens += static_cast<double>(whole.usage().prompt_tokens());
}

// Scrapes until it is told to stop: every text is whole, no counter falls, every block has a state.
class Scraper {
 public:
  explicit Scraper(const Metrics& metrics) : thread_([this, &metrics] { work(metrics); }) {}
  ~Scraper() {
    stop_ = true;
    thread_.join();
    EXPECT_GT(num_scrapes_, 0);
  }

 private:
  void work(const Metrics& metrics) {
    while (!stop_) {
      const Exposition seen(metrics.text());
      for (const auto& [name, family] : seen.families()) {
        if (family.type == "gauge") continue;
        for (const auto& [sample, value] : family.samples) {
          EXPECT_GE(value, std::exchange(last_[sample], value)) << sample.first;
        }
      }
      EXPECT_EQ(seen.sum("folio_kv_blocks"), 40);
      EXPECT_EQ(seen.value("folio_kv_blocks_unaccounted"), 0);
      EXPECT_LE(seen.value("folio_prefix_cache_hits_total"), seen.value("folio_prefix_cache_queries_total"));
      ++num_scrapes_;
    }
  }

  std::map<std::pair<std::string, Labels>, double> last_;
  int num_scrapes_ = 0;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

class MetricsRandomTest : public MetricsTest {
 protected:
  v1::GenerateRequest random_request() {
    std::string text(1 + random_() % 40, 'a');
    if (random_() % 2 == 0) std::ranges::generate(text, [this] { return static_cast<char>('a' + random_() % 3); });
    v1::GenerateRequest request = this->request(text, 1 + static_cast<std::int64_t>(random_() % 40));
    request.mutable_stopping()->set_ignore_eos(random_() % 2 == 0);
    request.set_n(random_() % 4 == 0 ? 2 : 1);
    if (random_() % 3 == 0) request.mutable_stopping()->add_stop(std::string(1, static_cast<char>(random_() % 128)));
    if (random_() % 5 == 0) request.set_time_limit_ms(static_cast<std::uint32_t>(1 + random_() % 300));
    if (random_() % 20 == 0) request.mutable_cache()->set_bypass(true);
    if (random_() % 20 == 0) request.set_model("another");
    if (random_() % 20 == 0) request.mutable_sampling()->set_min_p(2);
    if (random_() % 20 == 0) request.set_text(std::string(250, 'z'));  // over the pool
    return request;
  }

  std::mt19937 random_{7};
};

TEST_F(MetricsRandomTest, AllSumsAreWhatTheStreamsSaw) {
  constexpr int kNumRequests = 600;
  options_.max_queue = 8;
  num_blocks_ = 40;
  fail_every(97);
  serve();
  Seen seen;
  {
    const Scraper scraper(*metrics_);
    std::vector<std::shared_ptr<TestCall>> calls;
    for (int i = 0; i < kNumRequests; ++i) {
      const bool transport = random_() % 10 == 0;
      calls.push_back(start(random_request(),
                            transport ? clock_.now() + kStepTime * static_cast<int>(random_() % 30) : kNoDeadline));
      if (random_() % 6 == 0) calls[random_() % calls.size()]->cancel();
      if (random_() % 8 == 0) calls[random_() % calls.size()]->wait();
    }
    for (const auto& call : calls) add(*call, seen);
  }
  const Exposition told = scrape();
  const auto ended = [&](const char* reason) {
    return told.value("folio_request_success_total", {{"finished_reason", reason}});
  };
  const auto refused = [&](const char* reason) {
    return told.value("folio_admission_rejections_total", {{"reason", reason}});
  };
  const double num_ended = told.sum("folio_request_success_total");
  EXPECT_EQ(num_ended + told.sum("folio_admission_rejections_total"), kNumRequests);
  EXPECT_EQ(ended("stop"), seen.ends["stop"]);
  EXPECT_EQ(ended("length"), seen.ends["length"]);
  EXPECT_EQ(ended("error") + refused("internal"), seen.ends["internal"]);
  EXPECT_EQ(ended("abort") + refused("cancelled"), seen.ends["cancelled"]);
  EXPECT_EQ(ended("deadline") + refused("deadline_exceeded"), seen.ends["deadline"] + seen.ends["deadline_exceeded"]);
  EXPECT_EQ(refused("invalid_argument"), seen.ends["invalid_argument"]);
  EXPECT_EQ(refused("not_found"), seen.ends["not_found"]);
  EXPECT_EQ(refused("resource_exhausted"), seen.ends["resource_exhausted"]);
  for (const char* kind : {"stop", "length", "internal", "cancelled", "deadline_exceeded", "invalid_argument",
                           "not_found", "resource_exhausted"}) {
    EXPECT_GT(seen.ends[kind], 0) << kind << " never happened";
  }

  EXPECT_EQ(told.value("folio_generation_tokens_total"), seen.generation_tokens);
  EXPECT_EQ(told.value("folio_request_generation_tokens_sum"), seen.generation_tokens);
  EXPECT_EQ(told.value("folio_prompt_tokens_total"), seen.prompt_tokens);
  // One that was admitted and found late before its first step may have found a prompt of 40 tokens at most.
  EXPECT_GE(told.value("folio_prefix_cache_hits_total"), seen.cached_tokens);
  EXPECT_LE(told.value("folio_prefix_cache_hits_total"), seen.cached_tokens + 40 * seen.untold);
  EXPECT_EQ(told.value("folio_num_preemptions_total"), seen.preemptions);
  EXPECT_GT(seen.preemptions, 0);
  EXPECT_EQ(told.value("folio_time_to_first_token_seconds_count"), seen.gave_token);
  EXPECT_EQ(told.value("folio_request_prefill_time_seconds_count"), seen.gave_token);
  EXPECT_EQ(told.value("folio_request_decode_time_seconds_count"), seen.gave_token);
  EXPECT_EQ(told.value("folio_inter_token_latency_seconds_count"), seen.gaps);
  EXPECT_EQ(told.value("folio_e2e_request_latency_seconds_count"), num_ended);
  EXPECT_EQ(told.value("folio_request_queue_time_seconds_count"), num_ended);
  EXPECT_EQ(told.value("folio_request_prompt_tokens_count"), num_ended);
  EXPECT_EQ(told.value("folio_step_duration_seconds_count", {{"phase", "forward"}}),
            told.value("folio_engine_steps_total"));
}

}  // namespace
}  // namespace folio::test
