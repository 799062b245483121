#include "client/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

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

TEST(Samples, AllFiguresLieBetweenTheLeastAndTheMost) {
  Samples equal;
  for (int i = 0; i < 3; ++i) equal.add(0.1);  // whose sum is above 0.3
  const Figures figures = equal.figures();
  EXPECT_EQ(figures.count, 3U);
  for (const double figure :
       {figures.mean, figures.min, figures.p50, figures.p90, figures.p95, figures.p99, figures.max}) {
    EXPECT_EQ(figure, 0.1);
  }
  Samples two;
  two.add(1);
  two.add(2);
  EXPECT_EQ(two.figures().p50, 1);
  EXPECT_EQ(two.figures().p90, 2);
}

}  // namespace
}  // namespace folio::client
