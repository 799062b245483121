// Arrival processes by their moments.
#include "client/load_test/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace folio::client {
namespace {

std::vector<double> times(const ArrivalOptions& options, int count) {
  Arrivals arrivals(options);
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(arrivals.next());
  return out;
}

struct Moments {
  double mean = 0;
  double variation = 0;  // standard deviation / mean
  double skewness = 0;
};

Moments of_gaps(const std::vector<double>& at) {
  const auto n = static_cast<double>(at.size() - 1);
  Moments out;
  out.mean = (at.back() - at.front()) / n;
  double square = 0, cube = 0;
  for (std::size_t i = 1; i < at.size(); ++i) {
    const double d = at[i] - at[i - 1] - out.mean;
    square += d * d / n;
    cube += d * d * d / n;
  }
  out.variation = std::sqrt(square) / out.mean;
  out.skewness = square > 0 ? cube / std::pow(square, 1.5) : 0;
  return out;
}

constexpr int kMany = 200'000;

TEST(Arrivals, PoissonGapsAreExponential) {
  const Moments gaps = of_gaps(times({ArrivalKind::kPoisson, 20, 1, 0, 1}, kMany));
  EXPECT_NEAR(gaps.mean, 1.0 / 20, 0.01 / 20);
  EXPECT_NEAR(gaps.variation, 1, 0.02);
  EXPECT_NEAR(gaps.skewness, 2, 0.1);
}

// Numbers of arrivals in equal windows: for a Poisson process their variance is their mean.
TEST(Arrivals, PoissonCountsVaryAsMuchAsTheirMean) {
  std::vector<double> counts(10'000);
  for (const double at : times({ArrivalKind::kPoisson, 20, 1, 0, 2}, kMany)) {
    if (at < 10'000) counts[static_cast<std::size_t>(at)] += 1;
  }
  counts.resize(9'000);  // all within the arrivals that were drawn
  double mean = 0, variance = 0;
  for (const double count : counts) mean += count / 9'000;
  for (const double count : counts) variance += (count - mean) * (count - mean) / 9'000;
  EXPECT_NEAR(mean, 20, 0.3);
  EXPECT_NEAR(variance, 20, 1.5);
}

TEST(Arrivals, GammaGapsHaveTheVarianceOfTheirBurstiness) {
  for (const double burstiness : {0.25, 1.0, 4.0}) {
    const Moments gaps = of_gaps(times({ArrivalKind::kGamma, 5, burstiness, 0, 3}, kMany));
    EXPECT_NEAR(gaps.mean, 1.0 / 5, 0.01 / 5) << burstiness;
    EXPECT_NEAR(gaps.variation, 1 / std::sqrt(burstiness), 0.02 / std::sqrt(burstiness)) << burstiness;
    EXPECT_NEAR(gaps.skewness, 2 / std::sqrt(burstiness), 0.3) << burstiness;
  }
}

TEST(Arrivals, ConstantGapsBeginAtOnce) {
  const std::vector<double> at = times({ArrivalKind::kConstant, 20, 1, 0, 0}, 601);
  EXPECT_EQ(at.front(), 0);
  for (std::size_t i = 0; i < at.size(); ++i) EXPECT_NEAR(at[i], static_cast<double>(i) / 20, 1e-9);
}

// Until t of a ramp T to the rate R, R t^2 / (2 T) are expected; from there on R a second.
TEST(Arrivals, ARampHasTheIntegralOfItsRate) {
  for (const ArrivalKind kind : {ArrivalKind::kConstant, ArrivalKind::kPoisson}) {
    const std::vector<double> at = times({kind, 1000, 1, 20, 4}, 40'000);
    const auto until = [&](double t) {
      return static_cast<double>(std::upper_bound(at.begin(), at.end(), t) - at.begin());
    };
    EXPECT_NEAR(until(5), 625, 100);
    EXPECT_NEAR(until(10), 2'500, 200);
    EXPECT_NEAR(until(20), 10'000, 400);
    EXPECT_NEAR(until(30) - until(20), 10'000, 400);
    EXPECT_TRUE(std::is_sorted(at.begin(), at.end()));
  }
}

TEST(Arrivals, ASeedGivesTheSameTimesTwiceAndAnotherOthers) {
  const ArrivalOptions options{ArrivalKind::kPoisson, 20, 1, 0, 7};
  EXPECT_EQ(times(options, 100), times(options, 100));
  ArrivalOptions other = options;
  other.seed = 8;
  EXPECT_NE(times(options, 100), times(other, 100));
}

TEST(Arrivals, ATraceEnds) {
  Arrivals arrivals(std::vector<double>{0, 0.5, 0.5});
  EXPECT_EQ(arrivals.next(), 0);
  EXPECT_EQ(arrivals.next(), 0.5);
  EXPECT_EQ(arrivals.next(), 0.5);
  EXPECT_EQ(arrivals.next(), std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace folio::client
