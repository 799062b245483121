#include "client/load_test/knee.h"

#include <gtest/gtest.h>

namespace folio::client {
namespace {

SweepPoint point(double load, double tokens_per_second, double requests_per_second = 1, double due_per_second = 1) {
  SweepPoint out;
  out.load = load;
  out.summary.num_ok = 100;
  out.summary.output_tokens_per_second = tokens_per_second;
  out.summary.requests_per_second = requests_per_second;
  out.summary.due_per_second = due_per_second;
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
  const std::vector<SweepPoint> points = {point(1, 50, 1, 1), point(2, 99, 1.95, 2), point(4, 160, 3.3, 4)};
  EXPECT_EQ(find_knee(points, true), 1U);
  EXPECT_TRUE(is_past_knee(points, true, 10));
  EXPECT_FALSE(is_past_knee({points.begin(), points.begin() + 2}, true, 10));
  EXPECT_EQ(find_knee({point(8, 100, 3, 8)}, true), std::nullopt);
}

TEST(Knee, FailuresEndASweep) {
  std::vector<SweepPoint> points = {point(1, 50), point(2, 90)};
  points[1].summary.num_failed = 20;
  EXPECT_TRUE(is_past_knee(points, false, 10));
  EXPECT_FALSE(is_past_knee(points, false, 20));
}

TEST(Knee, PartialAndEmptyPointsAreNone) {
  std::vector<SweepPoint> points = {point(1, 50), point(2, 10)};
  points[0].summary.partial = true;
  EXPECT_EQ(find_knee(points, false), std::nullopt);
  EXPECT_EQ(find_knee({}, false), std::nullopt);
  EXPECT_FALSE(is_past_knee({}, false, 10));
}

}  // namespace
}  // namespace folio::client
