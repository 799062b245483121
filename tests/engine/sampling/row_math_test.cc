#include "engine/sampling/row_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace folio {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(ExpNonpositive, WithinTwoUnitsInTheLastPlace) {
  double worst = 0;
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(-1e-9F); bits < std::bit_cast<std::uint32_t>(-86.9F);
       bits += 97) {
    const auto x = std::bit_cast<float>(bits);
    const double exact = std::exp(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::ilogb(exact) - 23);
    worst = std::max(worst, std::abs(static_cast<double>(exp_nonpositive(x)) - exact) / unit);
  }
  EXPECT_LT(worst, 2.0);
  EXPECT_GT(worst, 0.0);
}

TEST(ExpNonpositive, Edges) {
  EXPECT_EQ(exp_nonpositive(0.0F), 1.0F);
  EXPECT_EQ(exp_nonpositive(-0.0F), 1.0F);
  EXPECT_EQ(exp_nonpositive(-1e-30F), 1.0F);
  EXPECT_EQ(exp_nonpositive(-87.0F), 0.0F);
  for (float x = -87.1F; x < -86.8F; x += 1e-5F) {
    const float value = exp_nonpositive(x);
    ASSERT_TRUE(value == 0.0F || value > 1.7e-38F) << x << " gives a denormal";
    if (x < -86.97F || x > -86.96F) {
      ASSERT_EQ(value == 0.0F, x < -86.97F) << x;
    }
  }
  EXPECT_EQ(exp_nonpositive(-1e30F), 0.0F);
  EXPECT_EQ(exp_nonpositive(-kInfinity), 0.0F);
  EXPECT_EQ(exp_nonpositive(kNan), 0.0F);
}

// The bits are promised, not only the accuracy: every build, width of vectors and optimisation gives these.
TEST(RowWeights, BitsAreTheSameInEveryBuild) {
  std::vector<float> row(100'003);
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i * 7919 % 100'000) * -0.0011F;
  RowWeights weights;
  weights.fill(row, 0.0F, 1.3F);
  std::uint64_t hash = 0xCBF2'9CE4'8422'2325;  // FNV-1a over words
  const auto mix = [&hash](std::uint64_t word) { hash = (hash ^ word) * 0x100'0000'01B3; };
  for (std::size_t i = 0; i < row.size(); ++i) mix(std::bit_cast<std::uint32_t>(weights[static_cast<TokenId>(i)]));
  mix(std::bit_cast<std::uint64_t>(weights.total()));
  mix(std::bit_cast<std::uint64_t>(natural_log(weights.total())));
  EXPECT_EQ(hash, 8055410229680125715U);
}

TEST(NaturalLog, AsExactAsADouble) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200'000; ++i) {
    const double x =
        std::ldexp(1.0 + static_cast<double>(random() >> 12) * 0x1p-52, static_cast<int>(random() % 400) - 200);
    const double exact = std::log(x);
    ASSERT_NEAR(natural_log(x), exact, 2e-15 * std::abs(exact) + 2e-16) << x;
  }
  EXPECT_EQ(natural_log(1.0), 0.0);
  EXPECT_NEAR(natural_log(0x1p-126), std::log(0x1p-126), 1e-13);
}

TEST(RowArgmax, LowestOfEqualsAtEverySizeAndPlace) {
  for (const std::size_t size : {1U, 2U, 15U, 16U, 17U, 127U, 128U, 129U, 300U}) {
    for (std::size_t at = 0; at < size; ++at) {
      std::vector<float> row(size, -5.0F);
      row[at] = -1.0F;
      row[size - 1] = -1.0F;
      EXPECT_EQ(row_argmax(row), static_cast<TokenId>(at));
      EXPECT_EQ(row_max(row), -1.0F);
    }
  }
}

TEST(RowArgmax, OddValues) {
  const std::vector<float> mixed = {kNan, -kInfinity, 3.0F, kNan, 3.0F};
  EXPECT_EQ(row_argmax(mixed), 2);
  EXPECT_EQ(row_argmax(std::vector<float>(200, kNan)), -1);
  EXPECT_EQ(row_argmax(std::vector<float>(200, -kInfinity)), -1);
  EXPECT_EQ(row_max(std::vector<float>(200, kNan)), -kInfinity);
}

TEST(SelectBest, EqualsAFullSort) {
  std::mt19937 random(5);
  std::vector<Candidate> best;
  for (int round = 0; round < 300; ++round) {
    std::vector<float> row(1 + random() % 6000);
    for (float& value : row) {
      const auto draw = random();
      value = draw % 50 == 0 ? kNan : draw % 51 == 0 ? -kInfinity : static_cast<float>(draw % 97);
    }
    if (round % 3 == 0)
      std::sort(row.begin(), row.end(), [](float a, float b) { return a < b; });  // each one is better
    std::vector<Candidate> wanted;
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (row[i] > -kInfinity) wanted.push_back({static_cast<TokenId>(i), row[i]});
    }
    std::sort(wanted.begin(), wanted.end(), ranks_before);
    const std::size_t count = 1 + random() % row.size();
    wanted.resize(std::min(wanted.size(), count));
    select_best(row, count, best);
    std::sort(best.begin(), best.end(), ranks_before);
    ASSERT_EQ(best.size(), wanted.size());
    for (std::size_t i = 0; i < best.size(); ++i) {
      ASSERT_EQ(best[i].id, wanted[i].id);
      ASSERT_EQ(best[i].value, wanted[i].value);
    }
  }
}

TEST(SelectFrom, AllFromTheBarOn) {
  std::vector<float> row(500, 0.0F);
  row[3] = 2.0F;
  row[131] = kNan;
  row[257] = 1.0F;
  std::vector<Candidate> found;
  select_from(row, 1.0F, found);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].id, 3);
  EXPECT_EQ(found[1].id, 257);
}

TEST(FindRanked, IsTheLastOfTheBest) {
  std::mt19937 random(9);
  std::vector<Candidate> best;
  std::vector<Candidate> work;
  std::vector<float> row(700);
  for (float& value : row) value = (static_cast<float>(random() % 200) - 100.0F) / 8.0F;  // ties, both signs
  row[3] = -0.0F;
  row[4] = 0.0F;
  row[5] = kNan;
  row[6] = -kInfinity;
  for (std::size_t count = 1; count <= 698; ++count) {
    select_best(row, count, best);
    const Candidate wanted = *std::max_element(best.begin(), best.end(), ranks_before);
    const auto found = find_ranked(row, count, work);
    ASSERT_TRUE(found);
    ASSERT_EQ(found->id, wanted.id) << count;
  }
  EXPECT_FALSE(find_ranked(row, 699, work));
}

TEST(RowWeights, SumAndWalk) {
  std::mt19937 random(6);
  for (const std::size_t size : {1U, 16U, 255U, 256U, 257U, 1000U}) {
    std::vector<float> row(size);
    for (float& value : row) value = static_cast<float>(random() % 1000) / 100.0F;
    const float max = row_max(row);
    RowWeights weights;
    weights.fill(row, max, 2.0F);
    double exact = 0;
    for (const float value : row) exact += std::exp((static_cast<double>(value) - max) / 2.0);
    const double total = weights.total();
    EXPECT_NEAR(total, exact, 1e-6 * exact);
    EXPECT_EQ(weights.find(0.0), 0);
    // The middle of an id's share finds that id; past the end, the last one.
    double before = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const double share = weights[static_cast<TokenId>(i)];
      EXPECT_EQ(weights.find(before + share / 2), static_cast<TokenId>(i));
      before += share;
    }
    EXPECT_EQ(weights.find(2 * total), static_cast<TokenId>(size - 1));
  }
}

TEST(RowWeights, WhatIsCutIsNeverFound) {
  std::vector<float> row = {1, 3, 2, 3, 2, 2};
  row.resize(600, -1.0F);
  RowWeights weights;
  weights.fill(row, 3.0F, 1.0F);
  weights.cut_after(row, {4, 2.0F});
  for (const TokenId id : {1, 2, 3, 4}) EXPECT_GT(weights[id], 0.0F);
  for (const TokenId id : {0, 5, 599}) EXPECT_EQ(weights[id], 0.0F);
  EXPECT_GT(weights.total(), 0.0);
  EXPECT_EQ(weights.find(0.0), 1);
  EXPECT_EQ(weights.find(1e9), 4);
}

}  // namespace
}  // namespace folio
