#include "engine/sampling/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "engine/sampling/sampler.h"

namespace folio {
namespace {

using Bits = std::array<std::uint32_t, 4>;

// Known answers of the authors' own library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Bits{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xFFFF'FFFF;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Bits{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Bits{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(UniformRandom, IsAFunctionOfAllItsArguments) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  std::set<double> seen;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 32, ~std::uint64_t{0}}) {
    for (const std::int32_t index : {0, 1, 127}) {
      for (const std::int64_t position : {std::int64_t{0}, std::int64_t{1}, std::int64_t{1} << 32, kMax}) {
        const double value = uniform_random(seed, index, position);
        EXPECT_EQ(value, uniform_random(seed, index, position));
        EXPECT_GE(value, 0.0);
        EXPECT_LT(value, 1.0);
        seen.insert(value);
      }
    }
  }
  EXPECT_EQ(seen.size(), 4U * 3 * 4);
  EXPECT_EQ(uniform_random(0, 0, 0), std::ldexp(static_cast<double>(0x6627'e8d5'e169'c58dULL >> 11), -53));
}

TEST(UniformRandom, FillsTheInterval) {
  constexpr int kDraws = 100'000;
  constexpr int kBins = 100;
  std::array<int, kBins> bins{};
  double sum = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = uniform_random(42, 0, i);
    sum += value;
    ++bins[static_cast<std::size_t>(value * kBins)];
  }
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * 0.29 / std::sqrt(kDraws));
  for (const int count : bins) EXPECT_NEAR(count, kDraws / kBins, 6 * std::sqrt(kDraws / kBins));
}

}  // namespace
}  // namespace folio
