#include "block_manager/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace folio {
namespace {

std::vector<BlockId> take_all(BlockPool& pool) {
  std::vector<BlockId> ids;
  while (pool.num_available() > 0) ids.push_back(pool.take());
  return ids;
}

TEST(BlockPool, HandsOutEveryBlockOnceAndNeverTheNullBlock) {
  BlockPool pool(7);
  EXPECT_EQ(pool.num_blocks(), 7);
  EXPECT_EQ(take_all(pool), (std::vector<BlockId>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(pool.num_available(), 0);
  EXPECT_EQ(pool.ref_count(3), 1);
  EXPECT_FALSE(pool.broken_invariant());
}

TEST(BlockPool, HandsOutFreeBlocksFirstAndThenTheLeastRecentlyGivenBackOfTheCached) {
  BlockPool pool(6);
  take_all(pool);
  for (BlockId id : {1, 2, 3, 4, 5}) pool.set_indexed(id, true);
  for (BlockId id : {3, 1, 6, 4}) pool.give_back(id);
  EXPECT_FALSE(pool.broken_invariant());
  EXPECT_EQ(pool.num_available(), 4);
  EXPECT_EQ(pool.num_cached(), 3);
  EXPECT_EQ(pool.num_held(), 2);
  EXPECT_EQ(pool.take(), 6);
  EXPECT_EQ(pool.take(), 3);
  pool.hold(1);
  pool.give_back(2);
  pool.give_back(1);
  pool.set_indexed(2, false);  // worth nothing any more
  EXPECT_FALSE(pool.broken_invariant());
  EXPECT_EQ(take_all(pool), (std::vector<BlockId>{2, 4, 1}));
}

TEST(BlockPool, ASeedShufflesTheOrderAndTheSameSeedGivesTheSame) {
  std::vector<BlockId> sorted(100);
  std::iota(sorted.begin(), sorted.end(), 1);
  BlockPool one(100, 5);
  BlockPool same(100, 5);
  BlockPool other(100, 6);
  const std::vector<BlockId> ids = take_all(one);
  EXPECT_NE(ids, sorted);
  EXPECT_EQ(ids, take_all(same));
  EXPECT_NE(ids, take_all(other));
  EXPECT_TRUE(std::is_permutation(ids.begin(), ids.end(), sorted.begin(), sorted.end()));
}

TEST(BlockPoolDeathTest, MisuseIsABrokenInvariant) {
  BlockPool pool(2);
  const BlockId id = pool.take();
  pool.give_back(id);
  EXPECT_DEATH(pool.give_back(id), "nobody holds");
  EXPECT_DEATH(pool.give_back(kNullBlock), "outside of the pool");
  EXPECT_DEATH(pool.give_back(3), "outside of the pool");
  EXPECT_DEATH(pool.hold(id), "without content");
  EXPECT_DEATH(pool.set_indexed(id, true), "somebody holds");
  take_all(pool);
  EXPECT_DEATH(pool.take(), "empty pool");
}

}  // namespace
}  // namespace folio
