// Counts what is asked of operator new: in the steady state, when tables have reserved, the block manager asks for
// nothing, but for a fork's own row of ids, once.
#include <gtest/gtest.h>

#include "block_manager/block_manager.h"
#include "tests/support/allocations.h"

namespace folio {
namespace {

constexpr std::int32_t kTableBlocks = 16;
constexpr std::int64_t kTokens = 16 * 4 - 1;

// Adopts, makes room, seals and gives back, with other tokens each time: what is cached is evicted again and again.
void live(BlockManager& blocks, BlockTable& table, std::vector<TokenId>& tokens, TokenId round) {
  for (std::size_t i = tokens.size() / 2; i < tokens.size(); ++i) tokens[i] = round;
  std::int64_t computed = blocks.adopt(table, tokens);
  for (; computed < kTokens; computed += 3) {
    ASSERT_TRUE(blocks.make_room(table, std::min(computed + 3, kTokens)));
    blocks.seal(table, tokens, std::min(computed + 3, kTokens));
  }
  table.clear();
}

TEST(BlockManagerAllocation, TheSteadyStateAsksForNoMemory) {
  BlockManager blocks(40, 4);
  const ContentRef root = blocks.open_domain("");
  std::vector<TokenId> tokens(static_cast<std::size_t>(kTokens), 7);
  std::vector<BlockTable> tables;
  for (TokenId round = 0; round < 200; ++round) {
    tables.push_back(blocks.make_table(root));
    tables.back().reserve(kTableBlocks);
  }
  const auto before = static_cast<std::size_t>(num_allocations());
  for (TokenId round = 0; round < 200; ++round) live(blocks, tables[static_cast<std::size_t>(round)], tokens, round);
  const auto after = static_cast<std::size_t>(num_allocations());
  EXPECT_EQ(after - before, 0U);
  EXPECT_GE(blocks.num_cached(), 32);
}

TEST(BlockManagerAllocation, AForkAsksOnceAndItsWritesNever) {
  BlockManager blocks(40, 4);
  const ContentRef root = blocks.open_domain("");
  const std::vector<TokenId> tokens(static_cast<std::size_t>(kTokens), 7);
  BlockTable table = blocks.make_table(root);
  table.reserve(kTableBlocks);
  BlockTable sources = blocks.make_table({});
  sources.reserve(1);
  ASSERT_TRUE(blocks.make_room(table, 10));
  blocks.seal(table, tokens, 10);
  for (int round = 0; round < 100; ++round) {
    const auto before = static_cast<std::size_t>(num_allocations());
    BlockTable fork = blocks.fork(table, 10);
    const auto forked = static_cast<std::size_t>(num_allocations());
    blocks.make_writable(fork, 10, sources);
    ASSERT_TRUE(blocks.make_room(fork, kTokens));
    blocks.seal(fork, tokens, kTokens);
    fork.clear();
    sources.clear();
    const auto after = static_cast<std::size_t>(num_allocations());
    ASSERT_EQ(forked - before, 1U);
    ASSERT_EQ(after - forked, 0U);
  }
}

}  // namespace
}  // namespace folio
