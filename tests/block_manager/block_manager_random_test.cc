// Random histories of a whole BlockManager against its twin. A failure names its seed and the operations; the seed
// alone makes the same history again: FOLIO_SEED=n block_manager_random_test.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "tests/block_manager/block_world.h"

namespace folio {
namespace {

// Much that fills the cache, little that empties it; tokens of few patterns, so that sequences begin alike.
constexpr std::array<int, kNumOpKinds> kWeights = {10, 3, 24, 20, 4, 9, 1, 12, 10, 3, 2, 3, 1, 1, 6, 6, 3, 1};

std::vector<std::uint8_t> random_history(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto pick = [&](int n) { return static_cast<std::uint8_t>(random() % static_cast<unsigned>(n)); };
  std::discrete_distribution<int> kind(kWeights.begin(), kWeights.end());
  const std::array<std::uint8_t, 2> patterns = {pick(256), pick(256)};
  std::vector<std::uint8_t> bytes = {pick(256), pick(256), pick(256)};
  for (int i = 20 + pick(200); i > 0; --i) {
    bytes.push_back(static_cast<std::uint8_t>(kind(random)));
    bytes.push_back(bytes.back() == 0 && pick(3) > 0 ? static_cast<std::uint8_t>(4 * pick(64)) : pick(256));
    bytes.push_back(pick(4) > 0 ? patterns[pick(2)] : pick(256));
  }
  return bytes;
}

TEST(BlockManagerRandom, HistoriesOfThousandsOfSeedsAreThoseOfTheTwin) {
  std::uint64_t first = 1;
  std::uint64_t last = 10000;
  if (const char* seed = std::getenv("FOLIO_SEED")) first = last = std::strtoull(seed, nullptr, 10);
  Met met;
  for (std::uint64_t seed = first; seed <= last; ++seed) {
    const auto fault = run_operations(random_history(seed), met);
    ASSERT_FALSE(fault) << "seed " << seed << ": " << *fault;
  }
  if (first == last) return;
  for (int kind = 0; kind < kNumOpKinds; ++kind) {
    const auto done = met.done[static_cast<std::size_t>(kind)];
    const bool changes = kind != static_cast<int>(OpKind::kLook) && kind != static_cast<int>(OpKind::kMove);
    EXPECT_GT(done, changes ? 200 : -1) << to_string({static_cast<OpKind>(kind), 0, 0});
  }
  EXPECT_GT(met.adopted_blocks, 10000);
  EXPECT_GT(met.partial_hits, 1000);
  EXPECT_GT(met.copies_on_write, 1000);
  EXPECT_GT(met.evictions, 10000);
  EXPECT_GT(met.refused_rooms, 1000);
  EXPECT_GT(met.sealed_twice, 1000);
  EXPECT_GT(met.sealed_under_nothing, 1000);
}

}  // namespace
}  // namespace folio
