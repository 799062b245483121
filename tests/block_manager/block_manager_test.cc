#include "block_manager/block_manager.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace folio {
namespace {

using Tokens = std::vector<TokenId>;

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

class BlockManagerReuse : public testing::Test {
 protected:
  // A sequence that computed these tokens.
  BlockTable compute(const Tokens& tokens, ContentRef root) {
    BlockTable table = blocks_.make_table(root);
    blocks_.adopt(table, tokens);
    EXPECT_TRUE(blocks_.make_room(table, std::ssize(tokens)));
    blocks_.seal(table, tokens, std::ssize(tokens));
    return table;
  }
  BlockTable compute(const Tokens& tokens) { return compute(tokens, root_); }
  void check(std::vector<const BlockTable*> tables) { EXPECT_EQ(blocks_.broken_invariant(tables), std::nullopt); }

  BlockManager blocks_{8, 2};
  ContentRef root_ = blocks_.open_domain("");
};

std::vector<BlockId> ids_of(const BlockTable& table) {
  return {table.ids().begin(), table.ids().end()};
}

TEST_F(BlockManagerReuse, ATableAdoptsTheLongestRunOfFullBlocks) {
  const BlockTable first = compute({1, 2, 3, 4, 5});
  EXPECT_EQ(first.num_sealed(), 2);
  for (const auto& [tokens, adopted] : std::vector<std::pair<Tokens, int>>{{{1, 2, 3, 4, 5, 6}, 4},
                                                                           {{1, 2, 3, 4}, 4},
                                                                           {{1, 2, 3}, 2},
                                                                           {{1, 2, 9, 9}, 2},
                                                                           {{3, 4}, 0},
                                                                           {{1}, 0},
                                                                           {{}, 0}}) {
    BlockTable table = blocks_.make_table(root_);
    EXPECT_EQ(blocks_.num_cached_tokens("", tokens), adopted);
    EXPECT_EQ(blocks_.num_cached_tokens("other", tokens), 0);
    EXPECT_EQ(blocks_.adopt(table, tokens), adopted);
    EXPECT_EQ(table.num_sealed(), adopted / 2);
    EXPECT_TRUE(std::equal(table.ids().begin(), table.ids().end(), first.ids().begin()));
    check({&first, &table});
  }
}

TEST_F(BlockManagerReuse, SaltsAndPrivateDomainsAdoptNothingOfOthers) {
  const ContentRef salted = blocks_.open_domain("salt");
  const ContentRef own = blocks_.open_private_domain();
  for (ContentRef root : {root_, salted, own}) compute({1, 2, 3, 4}, root);
  EXPECT_EQ(blocks_.num_cached(), 6);
  blocks_.close_domain(own);
  EXPECT_EQ(blocks_.num_cached(), 4);
  BlockTable table = blocks_.make_table(blocks_.open_private_domain());
  EXPECT_EQ(blocks_.adopt(table, Tokens{1, 2, 3, 4}), 0);
  EXPECT_EQ(blocks_.num_cached_tokens("salt", Tokens{1, 2, 3, 4}), 4);
  blocks_.close_domain(salted);
  EXPECT_EQ(blocks_.num_cached_tokens("salt", Tokens{1, 2, 3, 4}), 4);
}

TEST_F(BlockManagerReuse, APartialHitIsTheLongestCommonPartOfWhatComesNext) {
  const BlockTable one = compute({1, 2, 3, 4});
  const BlockTable two = compute({1, 2, 5, 6});
  BlockTable table = blocks_.make_table(root_);
  ASSERT_EQ(blocks_.adopt(table, Tokens{1, 2, 5, 7}), 2);
  const PartialHit hit = blocks_.partial_hit(table, Tokens{5, 7});
  EXPECT_EQ(hit.num_tokens, 1);
  EXPECT_EQ(hit.block, two.ids()[1]);
  EXPECT_EQ(blocks_.partial_hit(table, Tokens{3}).block, one.ids()[1]);
  EXPECT_EQ(blocks_.partial_hit(table, Tokens{8, 5}).num_tokens, 0);
  EXPECT_EQ(blocks_.partial_hit(table, Tokens{}).num_tokens, 0);
}

TEST_F(BlockManagerReuse, TheSourceOfACopyIsHeldUntilTheSourcesAreCleared) {
  const BlockId cached = compute({1, 2}).ids()[0];
  BlockTable sources = blocks_.make_table({});
  blocks_.hold(cached, sources);
  BlockTable all = blocks_.make_table({});
  ASSERT_TRUE(blocks_.make_room(all, 14));
  EXPECT_FALSE(blocks_.make_room(all, 16));
  EXPECT_EQ(std::count(all.ids().begin(), all.ids().end(), cached), 0);
  check({&sources, &all});
  sources.clear();
  EXPECT_TRUE(blocks_.make_room(all, 16));
  EXPECT_EQ(all.ids()[7], cached);
}

TEST_F(BlockManagerReuse, AForkSharesItsBlocksAndWritesIntoACopy) {
  const Tokens tokens = {1, 2, 3};
  BlockTable table = compute(tokens);
  EXPECT_TRUE(blocks_.is_writable(table, 3));
  EXPECT_FALSE(blocks_.is_writable(table, 1));
  BlockTable fork = blocks_.fork(table, 3);
  EXPECT_EQ(ids_of(fork), ids_of(table));
  EXPECT_EQ(fork.num_sealed(), 1);
  EXPECT_EQ(fork.tip().id, table.tip().id);
  EXPECT_EQ(blocks_.num_held(), 2);
  EXPECT_FALSE(blocks_.is_writable(table, 3));
  EXPECT_FALSE(blocks_.is_writable(fork, 3));

  BlockTable sources = blocks_.make_table({});
  const BlockId shared = table.ids()[1];
  EXPECT_EQ(blocks_.make_writable(fork, 3, sources), shared);
  EXPECT_NE(fork.ids()[1], shared);
  EXPECT_TRUE(blocks_.is_writable(fork, 3));
  EXPECT_FALSE(blocks_.is_writable(table, 3));  // the copy is still to be made
  check({&table, &fork, &sources});
  sources.clear();
  EXPECT_TRUE(blocks_.is_writable(table, 3));
  EXPECT_EQ(blocks_.num_held(), 3);
  check({&table, &fork});
}

TEST_F(BlockManagerReuse, AFullBlockThatAnotherSealedIsNotWrittenByItsLastHolder) {
  BlockTable table = blocks_.make_table(root_);
  ASSERT_TRUE(blocks_.make_room(table, 2));
  BlockTable fork = blocks_.fork(table, 1);
  blocks_.seal(table, Tokens{1, 2}, 2);
  const BlockId sealed = table.ids()[0];
  table.clear();
  EXPECT_EQ(blocks_.ref_count(sealed), 1);
  EXPECT_FALSE(blocks_.is_writable(fork, 1));
  BlockTable sources = blocks_.make_table({});
  EXPECT_EQ(blocks_.make_writable(fork, 1, sources), sealed);
  sources.clear();
  EXPECT_EQ(blocks_.num_cached_tokens("", Tokens{1, 2}), 2);
  check({&fork});
}

TEST_F(BlockManagerReuse, OnlyFullAndComputedBlocksAreSealed) {
  BlockTable table = blocks_.make_table(root_);
  const Tokens tokens = {1, 2, 3, 4};
  ASSERT_TRUE(blocks_.make_room(table, 4));
  for (const auto& [computed, sealed] : {std::pair{0, 0}, {1, 0}, {2, 1}, {3, 1}, {4, 2}, {4, 2}}) {
    blocks_.seal(table, tokens, computed);
    EXPECT_EQ(table.num_sealed(), sealed);
    EXPECT_EQ(blocks_.num_cached_tokens("", tokens), 2 * sealed);
  }
}

TEST_F(BlockManagerReuse, ContentSealedTwiceKeepsTheFirstEntryAndWhatFollowsHangsThere) {
  BlockTable one = blocks_.make_table(root_);
  BlockTable two = blocks_.make_table(root_);
  ASSERT_TRUE(blocks_.make_room(one, 2) && blocks_.make_room(two, 4));
  blocks_.seal(one, Tokens{1, 2}, 2);
  blocks_.seal(two, Tokens{1, 2, 3, 4}, 4);
  BlockTable table = blocks_.make_table(root_);
  EXPECT_EQ(blocks_.adopt(table, Tokens{1, 2, 3, 4}), 4);
  EXPECT_EQ(ids_of(table), (std::vector<BlockId>{one.ids()[0], two.ids()[1]}));
  EXPECT_EQ(ids_of(blocks_.chain(two.tip())), ids_of(table));
  EXPECT_EQ(blocks_.content_of(two, 1).node, one.ids()[0]);
  const BlockId second = two.ids()[0];
  two.clear();
  EXPECT_EQ(blocks_.ref_count(second), 0);
  EXPECT_EQ(blocks_.num_cached(), 0);
  check({&one, &two, &table});
}

TEST_F(BlockManagerReuse, AForgottenTableTakesWhatContinuesItAndSealsNothingMore) {
  BlockTable failed = compute({1, 2});
  const BlockTable after = compute({1, 2, 3, 4});
  const BlockTable other = compute({5, 6});
  blocks_.forget(failed);
  EXPECT_EQ(blocks_.num_cached_tokens("", Tokens{1, 2, 3, 4}), 0);
  EXPECT_EQ(blocks_.num_cached_tokens("", Tokens{5, 6}), 2);
  EXPECT_FALSE(blocks_.holds(after.tip()));
  EXPECT_EQ(blocks_.content_of(after, 1).id, 0U);
  ASSERT_TRUE(blocks_.make_room(failed, 4));
  blocks_.seal(failed, Tokens{1, 2, 3, 4}, 4);
  EXPECT_EQ(failed.num_sealed(), 2);
  EXPECT_EQ(blocks_.num_cached_tokens("", Tokens{1, 2, 3, 4}), 0);
  check({&failed, &after, &other});
}

TEST_F(BlockManagerReuse, AFlushForgetsAllButWhatIsToBeKept) {
  const BlockTable held = compute({1, 2, 3, 4});
  compute({5, 6});
  std::vector<std::int32_t> keep(9, 0);
  keep[static_cast<std::size_t>(held.ids()[0])] = 1;
  blocks_.flush(keep);
  EXPECT_EQ(blocks_.num_cached_tokens("", Tokens{1, 2, 3, 4}), 2);
  EXPECT_EQ(blocks_.num_cached_tokens("", Tokens{5, 6}), 0);
  EXPECT_EQ(blocks_.num_cached(), 0);
  check({&held});
  blocks_.flush(std::vector<std::int32_t>(9, 0));
  EXPECT_EQ(blocks_.num_cached_tokens("", Tokens{1, 2}), 0);
  check({&held});
}

TEST_F(BlockManagerReuse, TheLeastRecentlyUsedIsEvictedFirstAndTailsBeforeHeads) {
  compute({1, 2, 3, 4, 5, 6});
  compute({10, 20, 30, 40});
  ASSERT_EQ(blocks_.num_free(), 3);
  compute({1, 2});  // used again: the head of the first is the youngest now
  BlockTable table = blocks_.make_table({});
  std::vector<std::pair<std::int64_t, std::int64_t>> cached;
  for (std::int64_t n = 6; n <= 16; n += 2) {
    ASSERT_TRUE(blocks_.make_room(table, n));
    cached.emplace_back(blocks_.num_cached_tokens("", Tokens{1, 2, 3, 4, 5, 6}),
                        blocks_.num_cached_tokens("", Tokens{10, 20, 30, 40}));
    check({&table});
  }
  EXPECT_EQ(cached,
            (std::vector<std::pair<std::int64_t, std::int64_t>>{{6, 4}, {4, 4}, {2, 4}, {2, 2}, {2, 0}, {0, 0}}));
}

TEST_F(BlockManagerReuse, WhatManyTablesWouldReleaseIsCountedOnce) {
  const BlockTable one = compute({1, 2, 3, 4, 5});
  const BlockTable two = compute({1, 2, 3, 4, 7, 8});
  const BlockTable three = compute({1, 2});
  const std::vector<const BlockTable*> both = {&one, &two};
  EXPECT_EQ(blocks_.num_released_by(both), 3);  // the block of 1 2 is the third's too
  EXPECT_EQ(blocks_.num_distinct(both), 4);
  EXPECT_EQ(blocks_.num_released_by(std::vector<const BlockTable*>{&one}), 1);
  EXPECT_EQ(blocks_.num_released_by(std::vector<const BlockTable*>{&one, &two, &three}), 4);
}

TEST_F(BlockManagerReuse, ALeakedBlockIsSeenAlsoIfItIsSharedOrCached) {
  BlockTable table = compute({1, 2, 3});
  BlockTable forgotten = blocks_.make_table(root_);
  blocks_.adopt(forgotten, Tokens{1, 2});
  const std::vector<const BlockTable*> known = {&table};
  EXPECT_EQ(blocks_.count(known).unaccounted, 0);  // no block is missing, but one has a holder too many
  EXPECT_NE(blocks_.broken_invariant(known), std::nullopt);
  table.clear();
  EXPECT_EQ(blocks_.count(known).unaccounted, 1);
  EXPECT_NE(blocks_.broken_invariant(known), std::nullopt);
  forgotten.clear();
  EXPECT_EQ(blocks_.count(known).unaccounted, 0);
  check(known);
}

using BlockManagerDeathTest = BlockManagerReuse;

TEST_F(BlockManagerDeathTest, MisuseIsABrokenInvariant) {
  BlockTable table = compute({1, 2, 3});
  EXPECT_DEATH(blocks_.adopt(table, Tokens{1, 2}), "an empty table adopts");
  EXPECT_DEATH(blocks_.fork(table, 5), "a fork shares what is there");
  EXPECT_DEATH(blocks_.fork(table, 1), "a fork shares what is there");
  BlockTable sources = blocks_.make_table({});
  EXPECT_DEATH(blocks_.make_writable(table, 1, sources), "a sealed block is not written again");
  EXPECT_DEATH(blocks_.chain({}), "a chain's tip is indexed");
  blocks_.close_domain(root_);
  EXPECT_DEATH(blocks_.close_domain(root_), "an open domain is closed");
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
