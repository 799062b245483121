#include "block_manager/block_manager.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace folio {
namespace {

std::vector<const BlockTable*> pointers(const std::vector<BlockTable>& tables) {
  std::vector<const BlockTable*> all;
  for (const BlockTable& table : tables) all.push_back(&table);
  return all;
}

TEST(BlockManager, RoomIsMadeInWholeBlocksAndAskingTwiceChangesNothing) {
  BlockManager blocks(10, 5);
  BlockTable table = blocks.make_table({});
  EXPECT_TRUE(blocks.make_room(table, 0));
  EXPECT_EQ(table.size(), 0);
  EXPECT_TRUE(blocks.make_room(table, 1));
  EXPECT_TRUE(blocks.make_room(table, 5));
  EXPECT_EQ(table.size(), 1);
  EXPECT_TRUE(blocks.make_room(table, 6));
  EXPECT_TRUE(blocks.make_room(table, 6));
  EXPECT_TRUE(blocks.make_room(table, 2));
  EXPECT_EQ(table.size(), 2);
  EXPECT_EQ(blocks.num_available(), 8);
}

TEST(BlockManager, RoomIsAllOrNothing) {
  BlockManager blocks(3, 4);
  BlockTable table = blocks.make_table({});
  ASSERT_TRUE(blocks.make_room(table, 4));
  EXPECT_FALSE(blocks.make_room(table, 13));
  EXPECT_EQ(table.size(), 1);
  EXPECT_EQ(blocks.num_available(), 2);
  EXPECT_TRUE(blocks.make_room(table, 12));
  EXPECT_EQ(blocks.num_available(), 0);
}

TEST(BlockTable, AMovedTableIsEmptyAndUsable) {
  BlockManager blocks(3, 1);
  BlockTable kept = blocks.make_table({});
  {
    BlockTable table = blocks.make_table({});
    ASSERT_TRUE(blocks.make_room(table, 3));
    const std::vector<BlockId> ids(table.ids().begin(), table.ids().end());
    kept = std::move(table);
    EXPECT_EQ(table.size(), 0);  // NOLINT(bugprone-use-after-move): the contract of a moved table
    EXPECT_FALSE(blocks.make_room(table, 1));
    EXPECT_EQ(std::vector<BlockId>(kept.ids().begin(), kept.ids().end()), ids);
    kept.clear();
    ASSERT_TRUE(blocks.make_room(table, 2));
  }
  EXPECT_EQ(blocks.num_available(), 3);
}

TEST(BlockManager, CountsAndInvariantsHoldUnderRandomOperations) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    const int num_blocks = pick(1, 40);
    const int block_size = pick(1, 19);
    BlockManager blocks(num_blocks, block_size, seed);
    std::vector<BlockTable> tables;
    for (int operation = 0; operation < 300; ++operation) {
      const int what = pick(0, 9);
      if (what < 3 || tables.empty()) {
        tables.push_back(blocks.make_table({}));
      } else if (what < 8) {
        BlockTable& table = tables[static_cast<std::size_t>(pick(0, static_cast<int>(tables.size()) - 1))];
        const int tokens = pick(0, num_blocks * block_size + 2);
        const int before = table.size();
        const int free = blocks.num_available();
        const int wanted = std::max(before, (tokens + block_size - 1) / block_size);
        ASSERT_EQ(blocks.make_room(table, tokens), wanted - before <= free) << "seed " << seed;
        ASSERT_EQ(table.size(), wanted - before <= free ? wanted : before) << "seed " << seed;
      } else {
        std::swap(tables[static_cast<std::size_t>(pick(0, static_cast<int>(tables.size()) - 1))], tables.back());
        tables.pop_back();
      }
      ASSERT_EQ(blocks.broken_invariant(pointers(tables)), std::nullopt) << "seed " << seed;
      std::set<BlockId> held;
      for (const BlockTable& table : tables) held.insert(table.ids().begin(), table.ids().end());
      const BlockCounts counts = blocks.count(pointers(tables));
      ASSERT_EQ(counts.held, static_cast<int>(held.size()));
      ASSERT_EQ(counts.free + counts.held, counts.total);
      ASSERT_EQ(held.count(kNullBlock), 0U);
    }
    tables.clear();
    ASSERT_EQ(blocks.num_available(), num_blocks);
  }
}

TEST(BlockManager, ABlockLeakedOnPurposeIsSeen) {
  BlockManager blocks(5, 4);
  std::vector<BlockTable> tables;
  tables.push_back(blocks.make_table({}));
  ASSERT_TRUE(blocks.make_room(tables[0], 8));
  BlockTable forgotten = blocks.make_table({});
  ASSERT_TRUE(blocks.make_room(forgotten, 4));
  EXPECT_EQ(blocks.count(pointers(tables)).unaccounted, 1);
  EXPECT_NE(blocks.broken_invariant(pointers(tables)), std::nullopt);
  forgotten.clear();
  EXPECT_EQ(blocks.count(pointers(tables)).unaccounted, 0);
  EXPECT_EQ(blocks.broken_invariant(pointers(tables)), std::nullopt);
}

}  // namespace
}  // namespace folio
