#include "client/load_test/knee.h"

#include <gtest/gtest.h>

namespace folio::client {
namespace {

SweepPoint point(double load, double tokens_per_second, std::int64_t due = 100, std::int64_t growth = 0) {
  SweepPoint out;
  out.load = load;
  out.summary.num_ok = 100;
  out.summary.output_tokens_per_second = tokens_per_second;
  out.summary.num_due_in_second_half = due;
  out.summary.backlog_growth = growth;
  return out;
}

TEST(Knee, OverConcurrencyTheFirstWithNineTenthsOfTheBest) {
  const std::vector<SweepPoint> points = {point(1, 50), point(2, 95), point(4, 170), point(8, 185), point(16, 187)};
  EXPECT_EQ(find_knee(points, false), 2U);  // 170 >= 0.9 * 187
  EXPECT_FALSE(is_past_knee({points.begin(), points.begin() + 3}, false, 10));
  EXPECT_FALSE(is_past_knee({points.begin(), points.begin() + 4}, false, 10));
  EXPECT_FALSE(is_past_knee(points, false, 10));  // 185 was 9 % above 170
  std::vector<SweepPoint> more = points;
  more.push_back(point(32, 180));
  EXPECT_TRUE(is_past_knee(more, false, 10));
}

TEST(Knee, OverRateTheLastThatTheServerKeptUpWith) {
  const std::vector<SweepPoint> points = {point(1, 50, 10, 2), point(2, 99, 100, 10), point(4, 160, 100, 11)};
  EXPECT_EQ(find_knee(points, true), 1U);
  EXPECT_TRUE(is_past_knee(points, true, 10));
  EXPECT_FALSE(is_past_knee({points.begin(), points.begin() + 2}, true, 10));
  EXPECT_EQ(find_knee({point(8, 100, 100, 60)}, true), std::nullopt);
}

TEST(Knee, FailuresEndASweep) {
  std::vector<SweepPoint> points = {point(1, 50), point(2, 90)};
  points[1].summary.num_failed = 20;
  EXPECT_TRUE(is_past_knee(points, false, 10));
  EXPECT_FALSE(is_past_knee(points, false, 20));
}

TEST(Knee, PartialAndEmptyPointsAreNone) {
  std::vector<SweepPoint> points = {point(1, 50), point(2, 90)};
  points[1].summary.partial = true;
  EXPECT_EQ(find_knee(points, false), 0U);  // 90 is no complete point's
  points[0].summary.partial = true;
  EXPECT_EQ(find_knee(points, false), std::nullopt);
  EXPECT_EQ(find_knee({}, false), std::nullopt);
  EXPECT_FALSE(is_past_knee({}, false, 10));
}

}  // namespace
}  // namespace folio::client
