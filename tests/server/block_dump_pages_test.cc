#include "server/block_dump_pages.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <vector>

namespace folio {
namespace {

BlockDump dump_of(std::size_t num_blocks, const std::vector<std::size_t>& table_sizes) {
  BlockDump dump;
  dump.num_steps = 7;
  dump.block_size = 16;
  for (std::size_t i = 0; i < num_blocks; ++i) {
    dump.blocks.push_back({static_cast<std::int32_t>(i % 3), i % 2 == 0, i % 5 == 0});
  }
  for (const std::size_t size : table_sizes) {
    BlockDump::Table table{.request = dump.tables.size() + 1,
                           .is_pin = dump.tables.size() % 2 == 1,
                           .index = 3,
                           .num_tokens = 100,
                           .num_computed = 99,
                           .blocks = std::vector<BlockId>(size)};
    std::iota(table.blocks.begin(), table.blocks.end(), 1);
    dump.tables.push_back(std::move(table));
  }
  return dump;
}

// Reads all pages, checks their size and order, and gives the joined tables and blocks.
void expect_same(const BlockDump& dump) {
  BlockDumpPages pages(std::make_shared<const BlockDump>(dump));
  std::vector<std::vector<BlockId>> tables;
  std::int32_t num_blocks = 0;
  bool first = true;
  do {
    ASSERT_FALSE(pages.ended());
    const v1::BlockDump page = pages.next();
    EXPECT_LT(page.ByteSizeLong(), 64U << 10U);
    EXPECT_EQ(page.has_info(), first);
    EXPECT_TRUE(first || page.tables_size() + page.blocks_size() > 0) << "an empty page";
    if (first) {
      EXPECT_EQ(page.info().num_steps(), 7);
      EXPECT_EQ(page.info().block_size(), 16);
      EXPECT_EQ(page.info().num_blocks(), static_cast<std::int32_t>(dump.blocks.size()));
      EXPECT_EQ(page.info().num_tables(), static_cast<std::int32_t>(dump.tables.size()));
    }
    first = false;
    std::int32_t entries = page.blocks_size();
    for (const v1::BlockDump::Table& table : page.tables()) {
      entries += table.blocks_size();
      EXPECT_EQ(num_blocks, 0) << "tables come before blocks";
      if (table.first() == 0) tables.emplace_back();
      EXPECT_EQ(table.request_id(), tables.size());
      EXPECT_EQ(table.pin(), tables.size() % 2 == 0);
      EXPECT_EQ(table.num_computed_tokens(), 99);
      EXPECT_EQ(table.first(), static_cast<std::int32_t>(tables.back().size()));
      tables.back().insert(tables.back().end(), table.blocks().begin(), table.blocks().end());
    }
    EXPECT_LE(entries, BlockDumpPages::kMaxEntries);
    if (page.blocks_size() > 0) {
      EXPECT_EQ(page.first_block(), num_blocks + 1);
    }
    for (const v1::BlockDump::Block& block : page.blocks()) {
      const BlockDump::Block& from = dump.blocks[static_cast<std::size_t>(num_blocks++)];
      EXPECT_EQ(block.num_holders(), from.num_holders);
      EXPECT_EQ(block.state(), from.num_holders > 0 ? v1::BLOCK_STATE_HELD
                               : from.sealed        ? v1::BLOCK_STATE_CACHED
                                                    : v1::BLOCK_STATE_FREE);
      EXPECT_EQ(block.sealed(), from.sealed);
      EXPECT_EQ(block.pinned(), from.pinned);
    }
  } while (!pages.ended());
  ASSERT_EQ(tables.size(), dump.tables.size());
  for (std::size_t i = 0; i < tables.size(); ++i) EXPECT_EQ(tables[i], dump.tables[i].blocks);
  EXPECT_EQ(num_blocks, static_cast<std::int32_t>(dump.blocks.size()));
}

TEST(BlockDumpPages, WhateverTheSizesAllComesInOrder) {
  constexpr std::size_t kMax = BlockDumpPages::kMaxEntries;
  constexpr std::size_t kOwn = BlockDumpPages::kTableEntries;
  expect_same(dump_of(1, {}));
  expect_same(dump_of(3, {0, 0, 0}));
  for (const std::size_t size : {kMax - kOwn - 1, kMax - kOwn, kMax - kOwn + 1, kMax, kMax + 1, 3 * kMax}) {
    expect_same(dump_of(size, {}));
    expect_same(dump_of(10, {size}));
    expect_same(dump_of(size, {1, size, 0, 5, size}));
  }
  expect_same(dump_of(20'000, std::vector<std::size_t>(3000, 2)));
}

}  // namespace
}  // namespace folio
