// A KV cache that remembers, for each slot, what was written there: the hash of all tokens up to that position, and the
// hash that it was built on. A model's next token is made from the hash, so whatever is read wrongly shows twice: as a
// broken chain here, and as another output.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace folio {

inline constexpr std::uint64_t kFakeRoot = 0x9e3779b97f4a7c15;  // the hash of no tokens

std::uint64_t fake_hash(std::uint64_t previous, TokenId token);
std::uint64_t fake_hash(std::span<const TokenId> tokens);
TokenId fake_next_token(std::uint64_t hash, TokenId vocab_size);

class FakeCache {
 public:
  FakeCache(std::int32_t num_blocks, std::int32_t block_size);

  // Computes positions [first, first + tokens.size()) of the sequence whose blocks are `table`: reads all positions
  // before them, writes theirs. Returns the hash at each. Throws std::logic_error when a slot that is read does not
  // hold the successor of the one before it.
  std::vector<std::uint64_t> compute(std::span<const BlockId> table, std::int64_t first,
                                     std::span<const TokenId> tokens);
  void copy(BlockId from, BlockId to);

 private:
  struct Slot {
    std::uint64_t hash = 0;
    std::uint64_t previous = 0;
    bool written = false;
  };
  Slot& slot(std::span<const BlockId> table, std::int64_t position);

  const std::int32_t block_size_;
  std::vector<Slot> slots_;
};

}  // namespace folio
