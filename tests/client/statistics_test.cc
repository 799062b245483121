#include "client/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "client/bench.h"

namespace folio::client {
namespace {

using ::testing::HasSubstr;

TEST(Samples, NearestRankPercentiles) {
  Samples samples;
  for (int value = 100; value >= 1; --value) samples.add(value);
  EXPECT_EQ(samples.count(), 100U);
  EXPECT_DOUBLE_EQ(samples.mean(), 50.5);
  EXPECT_EQ(samples.percentile(50), 50);
  EXPECT_EQ(samples.percentile(99), 99);
  EXPECT_EQ(samples.percentile(0.1), 1);
  EXPECT_EQ(samples.max(), 100);
}

TEST(Samples, OneSampleIsEveryPercentile) {
  Samples samples;
  samples.add(7);
  for (const double percent : {1.0, 50.0, 99.0, 100.0}) EXPECT_EQ(samples.percentile(percent), 7);
}

TEST(Samples, NoSamplesGiveNoFigures) {
  EXPECT_THAT(statistics_row("x", Samples()), HasSubstr("no data"));
  EXPECT_EQ(to_json(Samples()).dump(), R"({"count":0})");
}

BenchRecord record(BenchRecord::Kind kind, double ttft_ms, std::int64_t tokens) {
  BenchRecord out;
  out.kind = kind;
  out.ttft_ms = ttft_ms;
  out.output_tokens = tokens;
  return out;
}

// C02: what gave no token has no latency and no throughput, but a class of its own.
TEST(BenchSummary, OnlySuccessesEnterTheFigures) {
  BenchSummary summary;
  for (int i = 0; i < 55; ++i) summary.add(record(BenchRecord::Kind::kOk, 100, 10));
  for (int i = 0; i < 30; ++i) summary.add(record(BenchRecord::Kind::kEmpty, 0, 0));
  for (int i = 0; i < 15; ++i) {
    BenchRecord failed = record(BenchRecord::Kind::kFailed, 0, 3);
    failed.error = "UNAVAILABLE";
    failed.message = "words " + std::to_string(i);
    summary.add(failed);
  }
  summary.duration_s = 2;
  EXPECT_EQ(summary.ttft_ms.count(), 55U);
  EXPECT_EQ(summary.ttft_ms.percentile(50), 100);
  const nlohmann::json json = summary.json();
  EXPECT_EQ(json["num_empty"], 30);
  EXPECT_EQ(json["num_failed"], 15);
  EXPECT_EQ(json["errors"]["UNAVAILABLE"]["first_message"], "words 0");
  EXPECT_EQ(json["output_tokens"], 550);
  EXPECT_EQ(json["output_tokens_per_second"], 275);
  EXPECT_THAT(summary.text(), HasSubstr("UNAVAILABLE: 15, first: words 0"));
}

TEST(BenchSummary, NothingGoodSaysNoDataAndNeverNan) {
  BenchSummary summary;
  summary.add(record(BenchRecord::Kind::kAborted, 0, 0));
  summary.partial = true;
  EXPECT_THAT(summary.text(), HasSubstr("no data"));
  EXPECT_THAT(summary.text(), HasSubstr("PARTIAL"));
  EXPECT_THAT(summary.json().dump(), ::testing::Not(HasSubstr("nan")));
  EXPECT_THAT(summary.json().dump(), ::testing::Not(HasSubstr("null")));
}

}  // namespace
}  // namespace folio::client
