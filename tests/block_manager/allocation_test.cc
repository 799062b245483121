// Counts what is asked of operator new: in the steady state, when tables have reserved, the block manager asks for
// nothing, but for a fork's own row of ids, once.
#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "block_manager/block_manager.h"

namespace {
std::size_t num_allocations = 0;
}

// Not inlined: g++ would take malloc and free for a mismatched pair where it sees only one of the two.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

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
  const std::size_t before = num_allocations;
  for (TokenId round = 0; round < 200; ++round) live(blocks, tables[static_cast<std::size_t>(round)], tokens, round);
  const std::size_t after = num_allocations;
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
    const std::size_t before = num_allocations;
    BlockTable fork = blocks.fork(table, 10);
    const std::size_t forked = num_allocations;
    blocks.make_writable(fork, 10, sources);
    ASSERT_TRUE(blocks.make_room(fork, kTokens));
    blocks.seal(fork, tokens, kTokens);
    fork.clear();
    sources.clear();
    const std::size_t after = num_allocations;
    ASSERT_EQ(forked - before, 1U);
    ASSERT_EQ(after - forked, 0U);
  }
}

}  // namespace
}  // namespace folio
