#include "client/load_test/lengths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace folio::client {
namespace {

using ::testing::HasSubstr;

std::vector<double> drawn(const std::string& text, int count) {
  const Lengths lengths = Lengths::parse(text);
  std::mt19937_64 random(1);
  std::vector<double> out;
  for (int i = 0; i < count; ++i) out.push_back(static_cast<double>(lengths.draw(random)));
  std::sort(out.begin(), out.end());
  return out;
}

double mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

TEST(Lengths, Fixed) {
  for (const double length : drawn("128", 10)) EXPECT_EQ(length, 128);
}

TEST(Lengths, UniformReachesBothEnds) {
  const std::vector<double> lengths = drawn("uniform:64,256", 50'000);
  EXPECT_EQ(lengths.front(), 64);
  EXPECT_EQ(lengths.back(), 256);
  EXPECT_NEAR(mean(lengths), 160, 1);
}

TEST(Lengths, LogNormalHasItsMedianAndSpread) {
  const std::vector<double> lengths = drawn("lognormal:200,0.6", 50'000);
  EXPECT_NEAR(lengths[25'000], 200, 4);
  EXPECT_NEAR(mean(lengths), 200 * std::exp(0.6 * 0.6 / 2), 4);
  const double spread = std::log(lengths[42'067] / lengths[7'933]) / 2;  // of one standard deviation to each side
  EXPECT_NEAR(spread, 0.6, 0.02);
}

TEST(Lengths, LogNormalIsClampedToItsLimits) {
  const std::vector<double> lengths = drawn("lognormal:200,2,100,300", 1'000);
  EXPECT_EQ(lengths.front(), 100);
  EXPECT_EQ(lengths.back(), 300);
  EXPECT_GE(drawn("lognormal:1,5", 10'000).front(), 1);
}

TEST(Lengths, FaultsAreNamed) {
  const std::pair<const char*, const char*> faults[] = {
      {"", "'' is not a number in [1, 10000000]"},
      {"0", "'0' is not a number"},
      {"12x", "'12x' is not a number"},
      {"-3", "'-3' is not a number"},
      {"99999999999999999999", "is not a number in [1, 10000000]"},
      {"uniform:5", "uniform wants uniform:MIN,MAX"},
      {"uniform:9,5", "the least, 9, is above the most, 5"},
      {"lognormal:200", "lognormal wants"},
      {"lognormal:200,nan", "SIGMA 'nan' is not a number in [0, 10]"},
      {"lognormal:200,0.6,5", "lognormal wants"},
      {"zipf:2", "'zipf' is not one of N, uniform"},
  };
  for (const auto& [text, complaint] : faults) {
    try {
      Lengths::parse(text);
      ADD_FAILURE() << text;
    } catch (const std::invalid_argument& wrong) {
      EXPECT_THAT(wrong.what(), HasSubstr(complaint)) << text;
    }
  }
}

}  // namespace
}  // namespace folio::client
