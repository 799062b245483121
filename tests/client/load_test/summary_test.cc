// Figures from known records: what enters them, and the rule of each.
#include "client/load_test/summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "client/load_test/report.h"

namespace folio::client {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

// Due and sent at once; `tokens` tokens, the first after ttft_ms and the others with a gap of 10 ms.
RequestRecord ok(double due_s, double ttft_ms, std::int64_t tokens) {
  RequestRecord out;
  out.outcome = Outcome::kOk;
  out.due_s = out.ready_s = out.sent_s = due_s;
  out.first_s = due_s + ttft_ms / 1000;
  out.end_s = *out.first_s + 0.01 * static_cast<double>(tokens - 1);
  out.prompt_tokens = 3;
  out.output_tokens = tokens;
  for (std::int64_t i = 0; i < tokens; ++i) {
    out.times.moments.push_back({*out.first_s + 0.01 * static_cast<double>(i), 1});
    if (i > 0) out.times.gaps_ms.push_back(10);
  }
  return out;
}

RequestRecord bad(Outcome outcome, const std::string& error = "", const std::string& message = "") {
  RequestRecord out;
  out.outcome = outcome;
  out.error = error;
  out.message = message;
  return out;
}

RunResult lasting(double seconds) {
  RunResult run;
  run.duration_s = run.sending_s = seconds;
  return run;
}

Summary of(const std::vector<RequestRecord>& records, double seconds, const SummaryOptions& options = {}) {
  return summarize(records, lasting(seconds), false, options, {});
}

// C02: what gave no token has no latency and no throughput, but a class of its own.
TEST(Summary, OnlySuccessesEnterTheFigures) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 55; ++i) records.push_back(ok(0, 100, 10));
  for (int i = 0; i < 30; ++i) records.push_back(bad(Outcome::kEmpty));
  for (int i = 0; i < 10; ++i) records.push_back(bad(Outcome::kFailed, "connection", "words " + std::to_string(i)));
  for (int i = 0; i < 5; ++i) records.push_back(bad(Outcome::kFailed, "RESOURCE_EXHAUSTED", "full"));
  const Summary summary = of(records, 2);
  EXPECT_EQ(summary.ttft_ms.count(), 55U);
  EXPECT_NEAR(summary.ttft_ms.percentile(50), 100, 1e-6);
  const nlohmann::json json = to_json(summary);
  EXPECT_EQ(json["num_ok"], 55);
  EXPECT_EQ(json["num_empty"], 30);
  EXPECT_EQ(json["num_failed"], 15);
  EXPECT_EQ(json["num_refused"], 5);
  EXPECT_EQ(json["errors"]["connection"]["count"], 10);
  EXPECT_EQ(json["errors"]["connection"]["first_message"], "words 0");
  EXPECT_EQ(json["output_tokens"], 550);
  EXPECT_EQ(json["output_tokens_per_second"], 275);
  EXPECT_EQ(json["requests_per_second"], 27.5);
  EXPECT_EQ(json["itl_ms"]["count"], 495);
  EXPECT_DOUBLE_EQ(summary.failed_share(), 0.45);
  EXPECT_THAT(to_text(summary), AllOf(HasSubstr("connection: 10, first: words 0"),
                                      HasSubstr("55 ok, 30 empty, 15 failed, 0 aborted in 2.00 s")));
}

TEST(Summary, NothingGoodSaysNoDataAndNeverNan) {
  RunResult run;
  run.stopped = true;
  const Summary summary = summarize({bad(Outcome::kAborted)}, run, true, {0, 0, parse_goals("ttft:5")}, {});
  EXPECT_THAT(to_text(summary), AllOf(HasSubstr("no data"), HasSubstr("PARTIAL"), Not(HasSubstr("nan"))));
  EXPECT_THAT(to_json(summary).dump(), AllOf(Not(HasSubstr("nan")), Not(HasSubstr("null"))));
  EXPECT_EQ(to_json(summary)["ttft_ms"].dump(), R"({"count":0})");
  EXPECT_THAT(to_csv({}, {summary}), Not(HasSubstr("nan")));
  const Summary none = summarize({}, {}, false, {}, {});
  EXPECT_THAT(to_json(none).dump(), AllOf(Not(HasSubstr("nan")), Not(HasSubstr("null"))));
  EXPECT_EQ(none.failed_share(), 0);
}

TEST(Summary, CancelledAndAbortedAreNoFailures) {
  const Summary summary =
      of({ok(0, 10, 2), bad(Outcome::kCancelled, "CANCELLED"), bad(Outcome::kAborted, "CANCELLED")}, 1);
  EXPECT_EQ(summary.num_cancelled, 1);
  EXPECT_EQ(summary.num_aborted, 1);
  EXPECT_EQ(summary.failed_share(), 0);
  EXPECT_TRUE(summary.errors.empty());
  EXPECT_THAT(to_text(summary), HasSubstr("cancelled by us as asked: 1"));
}

TEST(Summary, LatencyIsFromWhenItWasDueAndTheOtherStandsBeside) {
  RequestRecord late = ok(1, 200, 3);
  late.ready_s = 1.14;
  late.sent_s = 1.15;
  const Summary summary = of({late}, 2);
  EXPECT_NEAR(summary.ttft_ms.mean(), 200, 1e-6);
  EXPECT_NEAR(summary.ttft_from_sent_ms.mean(), 50, 1e-6);
  EXPECT_NEAR(summary.e2e_ms.mean(), 220, 1e-6);
  EXPECT_NEAR(summary.e2e_from_sent_ms.mean(), 70, 1e-6);
  EXPECT_NEAR(summary.send_delay_ms.mean(), 150, 1e-6);
  EXPECT_NEAR(summary.own_delay_ms.mean(), 10, 1e-6);
  EXPECT_EQ(summary.num_late, 1);
}

TEST(Summary, WarmUpAndCoolDownAreLeftOut) {
  std::vector<RequestRecord> records = {ok(0.5, 900, 1), ok(2, 100, 11), ok(5, 300, 1), ok(9.5, 700, 1),
                                        bad(Outcome::kFailed, "UNAVAILABLE")};  // due at 0
  const Summary summary = of(records, 10, {1, 1, {}});
  EXPECT_DOUBLE_EQ(summary.window_s, 8);
  EXPECT_EQ(summary.num_ok, 2);
  EXPECT_EQ(summary.num_failed, 0);
  EXPECT_EQ(summary.num_left_out, 3);
  EXPECT_EQ(summary.num_left_out_failed, 1);
  EXPECT_NEAR(summary.ttft_ms.max(), 300, 1e-6);
  // The first request's token came in the window, though it was due before: rates count what happens in it.
  EXPECT_DOUBLE_EQ(summary.output_tokens_per_second, 13.0 / 8);
  EXPECT_DOUBLE_EQ(summary.requests_per_second, 3.0 / 8);
  EXPECT_THAT(to_text(summary), HasSubstr("left out, due in warm-up or cool-down: 3 (1 of them empty or failed)"));
}

// Sending ended after 4 s, and the last request 3 s later: rates are those under load.
TEST(Summary, ADurationsRatesAreThoseUnderLoad) {
  RunResult run = lasting(7);
  run.sending_s = 4;
  run.timed_out = true;
  RequestRecord straddles = ok(3, 500, 1);
  straddles.end_s = 7;
  straddles.times.moments.push_back({6.5, 5});
  straddles.output_tokens = 6;
  const Summary summary = summarize({ok(1, 100, 11), straddles}, run, false, {}, {});
  EXPECT_DOUBLE_EQ(summary.window_s, 4);
  EXPECT_DOUBLE_EQ(summary.requests_per_second, 1.0 / 4);
  EXPECT_DOUBLE_EQ(summary.output_tokens_per_second, 12.0 / 4);
  EXPECT_EQ(summary.output_tokens, 17);
  EXPECT_EQ(summary.e2e_ms.count(), 2U);  // latency is of both
  EXPECT_THAT(to_text(summary), HasSubstr("rates of 2 ok requests over 4.00 s: 0.25 requests/s"));
}

TEST(Summary, TheBacklogIsWhatIsDueAndHasNotEnded) {
  RunResult run = lasting(20);
  run.sending_s = 10;
  run.timed_out = true;
  run.num_missed = 2;
  std::vector<RequestRecord> records;
  for (int i = 0; i < 10; ++i) {
    records.push_back(ok(i + 0.5, 100, 1));
    records.back().end_s = i + 0.5 + (i < 5 ? 0.2 : 8);  // from 5 s on nothing ends before 10
  }
  const Summary summary = summarize(records, run, true, {}, {});
  EXPECT_EQ(summary.num_due_in_second_half, 7);
  EXPECT_EQ(summary.backlog_growth, 7);
}

TEST(Summary, ThePeakIsNotBelowTheMean) {
  for (const double seconds : {0.3, 1.0, 1.5, 7.9}) {
    std::vector<RequestRecord> records = {ok(0, 10, 5), ok(seconds / 2, 10, 20), ok(seconds - 0.2, 5, 10)};
    const Summary summary = of(records, seconds);
    EXPECT_GE(summary.peak_output_tokens_per_second, summary.output_tokens_per_second) << seconds;
    double mean = 0;
    const auto rates = token_rates(records, 0, seconds);
    for (const auto& [at, rate] : rates) mean += rate / static_cast<double>(rates.size());
    EXPECT_NEAR(mean, summary.output_tokens_per_second, 1e-9) << seconds;
  }
}

TEST(Summary, GoodputKeepsAllLimits) {
  RequestRecord stutters = ok(0, 100, 11);
  stutters.times.gaps_ms[4] = 80;
  const std::vector<RequestRecord> records = {
      ok(0, 100, 11),          ok(0, 600, 11), stutters, ok(0, 100, 1), bad(Outcome::kFailed, "INTERNAL"),
      bad(Outcome::kCancelled)};
  const Summary summary = of(records, 2, {0, 0, parse_goals("ttft:500,itl:50")});
  EXPECT_EQ(summary.num_good, 2);
  EXPECT_DOUBLE_EQ(summary.good_share(), 0.4);  // of the five that were not cancelled
  EXPECT_DOUBLE_EQ(summary.good_requests_per_second, 1);
  EXPECT_DOUBLE_EQ(summary.good_tokens_per_second, 6);
  EXPECT_EQ(to_json(summary)["goodput"]["limits"], "ttft:500,itl:50");
  EXPECT_THAT(to_text(summary), HasSubstr("goodput ttft:500,itl:50: 2 requests (40.0 %), 1.00 requests/s"));
  EXPECT_EQ(of(records, 2, {0, 0, parse_goals("tpot:15")}).num_good, 3);
  EXPECT_EQ(of(records, 2, {0, 0, parse_goals("e2e:150")}).num_good, 1);
}

TEST(Goals, FaultsAreNamed) {
  for (const char* text :
       {"", "ttft", "ttft:", "ttft:x", "ttft:-1", "ttft:0", "ttft:nan", "speed:5", "ttft:5,ttft:6", "ttft:5ms"}) {
    EXPECT_THROW(parse_goals(text), std::invalid_argument) << text;
  }
  EXPECT_EQ(to_text(parse_goals("itl:50,e2e:2000.5")), "itl:50,e2e:2000.5");
}

TEST(Summary, TheClientsOwnLagIsToldWhenItShows) {
  ClientLoad quiet;
  quiet.cpu_s = 0.5;
  for (int i = 0; i < 100; ++i) quiet.read_lag_ms.add(0.5);
  const auto reasons = [](const ClientLoad& client, double own_delay_s) {
    RequestRecord record = ok(1, 100, 2);
    record.sent_s += own_delay_s;
    return summarize({record}, lasting(2), true, {}, client).saturation();
  };
  EXPECT_THAT(reasons(quiet, 0.001), ElementsAre());
  EXPECT_THAT(reasons(quiet, 0.05), ElementsAre(HasSubstr("sent requests late by itself, p99 50.0 ms")));
  ClientLoad busy = quiet;
  busy.cpu_s = 1.9;
  EXPECT_THAT(reasons(busy, 0), ElementsAre(HasSubstr("used 0.95 of the 1 cores")));
  ClientLoad slow = quiet;
  for (int i = 0; i < 5; ++i) slow.read_lag_ms.add(40);
  EXPECT_THAT(reasons(slow, 0), ElementsAre(HasSubstr("read late, p99 40.0 ms")));
  EXPECT_THAT(to_text(summarize({ok(0, 1, 1)}, lasting(2), false, {}, busy)),
              HasSubstr("warning: the client itself may be the bottleneck: it used"));
}

TEST(Summary, WhatTheCountsRestOnIsTold) {
  RequestRecord estimated = ok(0, 10, 4);
  estimated.estimated = true;
  RequestRecord unknown = ok(0, 10, 1);
  unknown.output_tokens.reset();
  unknown.times = {};
  RequestRecord differs = ok(0, 10, 4);
  differs.counts_differ = true;
  const Summary summary = of({estimated, unknown, differs}, 1);
  EXPECT_EQ(summary.output_tokens, 8);
  EXPECT_EQ(summary.ttft_ms.count(), 3U);  // latency to the first content needs no count
  EXPECT_THAT(to_text(summary), AllOf(HasSubstr("estimate: of 1 requests"), HasSubstr("warning: of 1 requests neither"),
                                      HasSubstr("usage is not the number of ids")));
}

TEST(Report, TheTableOfOneRowHasItsColumns) {
  const Summary summary = of({ok(0, 100, 3)}, 1);
  const std::string csv = to_csv({{"concurrency", {"8", ""}}, {"note", {"a,\"b\"", "c"}}}, {summary, Summary()});
  std::istringstream lines(csv);
  std::string header, first, second, rest;
  std::getline(lines, header);
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_FALSE(std::getline(lines, rest));
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  EXPECT_THAT(header, AllOf(HasSubstr("concurrency,note,partial,"), HasSubstr(",ttft_ms_p99,")));
  EXPECT_EQ(commas(first), commas(header) + 1);  // one more inside the quotes
  EXPECT_EQ(commas(second), commas(header));
  EXPECT_THAT(first, HasSubstr("8,\"a,\"\"b\"\"\",false,1.0,"));
}

TEST(Report, PlotsHoldTheirSeries) {
  std::vector<RequestRecord> records;
  for (int i = 0; i < 50; ++i) records.push_back(ok(i * 0.1, 100 + i, 3));
  records.push_back(bad(Outcome::kFailed, "INTERNAL"));
  const std::vector<Plot> plots = make_plots(of(records, 6), records);
  ASSERT_EQ(plots.size(), 4U);
  EXPECT_EQ(plots[0].series[0].points.size(), 50U);
  EXPECT_NEAR(plots[0].series[0].points[7].second, 107, 1e-6);
  EXPECT_NEAR(plots[1].series[0].points.back().first, 100, 1e-9);
  EXPECT_NEAR(plots[1].series[0].points.back().second, 149, 1e-6);
  EXPECT_EQ(plots[2].series[0].points.size(), 6U);
  EXPECT_EQ(plots[3].series[0].points.back().second, 0);
}

// One under way from 1 s to 3 s, a second one from 2 s: steps, and no slopes.
TEST(Report, RequestsUnderWayAreSteps) {
  std::vector<RequestRecord> records = {ok(1, 100, 1), ok(2, 100, 1)};
  records[0].end_s = records[1].end_s = 3;
  const Plot plot = make_plots(of(records, 3), records)[3];
  EXPECT_THAT(plot.series[0].points, ElementsAre(Pair(1, 0), Pair(1, 1), Pair(2, 1), Pair(2, 2), Pair(3, 2), Pair(3, 1),
                                                 Pair(3, 1), Pair(3, 0)));
}

// A second run with the same seed: its figures are the cache's.
TEST(Report, PromptsOutOfTheCacheAreTold) {
  std::vector<RequestRecord> records = {ok(0, 100, 3), ok(0, 100, 3)};
  EXPECT_THAT(to_text(of(records, 1)), AllOf(HasSubstr("prompt tokens/s (6),"), Not(HasSubstr("cache"))));
  records[0].cached_tokens = 3;
  EXPECT_THAT(to_text(of(records, 1)), AllOf(HasSubstr("(6, 3 of them cached),"), Not(HasSubstr("warning"))));
  records[1].cached_tokens = 1;
  EXPECT_THAT(to_text(of(records, 1)),
              HasSubstr("warning: more than half of the prompt tokens were in the server's cache"));
  SummaryOptions options;
  options.expects_cached = true;
  EXPECT_THAT(to_text(of(records, 1, options)), AllOf(HasSubstr("(6, 4 of them cached),"), Not(HasSubstr("warning"))));
}

// n requests have n - 1 gaps between them.
TEST(Summary, RatesOfAPlanAreThoseOfItsGaps) {
  RunResult run = lasting(1);
  run.sending_s = 0.1;
  run.all_sent = true;
  const Summary two = summarize({ok(0, 10, 1), ok(0.1, 10, 1)}, run, true, {}, {});
  EXPECT_DOUBLE_EQ(two.due_per_second.value_or(0), 10);
  EXPECT_DOUBLE_EQ(two.sent_per_second.value_or(0), 10);
  EXPECT_THAT(to_text(two), HasSubstr("open loop: 10.00 requests/s were due, 10.00 were sent, 0 later than"));
  run.sending_s = 7e-5;
  const Summary one = summarize({ok(0, 10, 1)}, run, true, {}, {});
  EXPECT_FALSE(one.due_per_second || one.sent_per_second);
  EXPECT_THAT(to_text(one), HasSubstr("open loop: 0 later than 100 ms, 0 never\n"));
  EXPECT_FALSE(to_json(one)["open_loop"].contains("due_per_second"));
  const auto commas = [](const std::string& line) { return std::count(line.begin(), line.end(), ','); };
  const std::string csv = to_csv({}, {one});
  EXPECT_EQ(commas(csv.substr(0, csv.find('\n'))) * 2, commas(csv));
  run = lasting(4);  // a duration ended the sending
  EXPECT_DOUBLE_EQ(summarize({ok(1, 10, 1), ok(3, 10, 1)}, run, true, {}, {}).due_per_second.value_or(0), 0.5);
}

TEST(Summary, AnswersShorterThanAskedAreTold) {
  std::vector<RequestRecord> records = {ok(0, 100, 10), ok(0, 100, 7), ok(0, 100, 5), ok(0, 100, 3)};
  records[0].num_asked = records[1].num_asked = records[2].num_asked = 10;
  records[2].estimated = true;  // and records[3] was free to end when it liked
  const Summary summary = of(records, 1);
  EXPECT_EQ(to_json(summary)["num_short"], 1);
  EXPECT_EQ(to_json(summary)["num_missing_tokens"], 3);
  EXPECT_THAT(to_text(summary), HasSubstr("warning: 1 of 4 answers were shorter than asked, 3 tokens fewer: "));
  records[1].num_asked = 7;
  EXPECT_THAT(to_text(of(records, 1)), Not(HasSubstr("shorter than asked")));
}

TEST(Summary, WithoutAFigureTheClientIsNoBottleneckOfIt) {
  ClientLoad busy;
  busy.cpu_s = 0.99;
  EXPECT_EQ(summarize({ok(0, 100, 10)}, lasting(1), false, {}, busy).saturation().size(), 1U);
  EXPECT_THAT(summarize({bad(Outcome::kFailed, "INVALID_ARGUMENT")}, lasting(1), false, {}, busy).saturation(),
              ElementsAre());
}

}  // namespace
}  // namespace folio::client
