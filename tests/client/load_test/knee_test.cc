#include "client/load_test/knee.h"

#include <gtest/gtest.h>

#include <utility>

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

// {place, reached}, {-1, false}: none.
std::pair<int, bool> knee(const std::vector<SweepPoint>& points, bool over_rate) {
  const std::optional<Knee> found = find_knee(points, over_rate);
  return found ? std::pair(static_cast<int>(found->point), found->is_reached) : std::pair(-1, false);
}

constexpr std::pair<int, bool> kNone{-1, false};

TEST(Knee, OverConcurrencyTheFirstWithNineTenthsOfTheBest) {
  const std::vector<SweepPoint> points = {point(1, 50), point(2, 95), point(4, 170), point(8, 185), point(16, 187)};
  EXPECT_EQ(knee(points, false), std::pair(2, true));  // 170 >= 0.9 * 187
  EXPECT_FALSE(is_past_knee({points.begin(), points.begin() + 3}, false, 10));
  EXPECT_FALSE(is_past_knee({points.begin(), points.begin() + 4}, false, 10));
  EXPECT_FALSE(is_past_knee(points, false, 10));  // 185 was 9 % above 170
  std::vector<SweepPoint> more = points;
  more.push_back(point(32, 180));
  EXPECT_TRUE(is_past_knee(more, false, 10));
}

TEST(Knee, OverRateTheLastThatTheServerKeptUpWith) {
  const std::vector<SweepPoint> points = {point(1, 50, 10, 2), point(2, 99, 100, 10), point(4, 160, 100, 11)};
  EXPECT_EQ(knee(points, true), std::pair(1, true));
  EXPECT_EQ(knee({points.begin(), points.begin() + 2}, true), std::pair(1, false));
  EXPECT_TRUE(is_past_knee(points, true, 10));
  EXPECT_FALSE(is_past_knee({points.begin(), points.begin() + 2}, true, 10));
  EXPECT_EQ(knee({point(8, 100, 100, 60)}, true), kNone);
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
  EXPECT_EQ(knee(points, false), std::pair(0, false));  // 90 is no complete point's, and more may be there
  points[0].summary.partial = true;
  EXPECT_EQ(knee(points, false), kNone);
  EXPECT_EQ(knee({}, false), kNone);
  EXPECT_FALSE(is_past_knee({}, false, 10));
}

}  // namespace
}  // namespace folio::client
