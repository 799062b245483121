// Block arithmetic and the pool behind one verb: make room for N tokens. Knows tables and counts, no sequences, no
// requests. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "block_manager/block_pool.h"
#include "block_manager/block_table.h"

namespace folio {

// free + held + cached == total, unless a block was lost: then unaccounted says how many.
struct BlockCounts {
  std::int32_t total = 0;
  std::int32_t free = 0;
  std::int32_t held = 0;    // distinct blocks that the given tables name: counted there, never by subtraction
  std::int32_t cached = 0;  // held by nobody, content kept for reuse: 0 until there is a prefix index
  std::int32_t unaccounted = 0;
};

class BlockManager {
 public:
  BlockManager(std::int32_t num_blocks, std::int32_t block_size, std::uint64_t shuffle_seed = 0);

  BlockTable make_table() { return BlockTable(pool_); }
  // Idempotent: the table covers positions [0, num_tokens) from now on, or nothing changed (false).
  bool make_room(BlockTable& table, std::int64_t num_tokens) { return table.grow_to(blocks_for(num_tokens)); }

  std::int32_t blocks_for(std::int64_t num_tokens) const {
    return static_cast<std::int32_t>((num_tokens + block_size_ - 1) / block_size_);
  }
  std::int32_t block_size() const { return block_size_; }
  std::int32_t num_blocks() const { return pool_.num_blocks(); }
  std::int32_t num_free() const { return pool_.num_free(); }

  // Both want every table that is alive. count() costs what the tables hold, whatever the size of the pool.
  BlockCounts count(std::span<const BlockTable* const> tables);
  // free + held + cached == total; every block has as many holders as tables name it; the free list is whole. Nothing
  // when all holds, else what does not.
  std::optional<std::string> broken_invariant(std::span<const BlockTable* const> tables);

 private:
  BlockPool pool_;
  const std::int32_t block_size_;
  std::vector<std::uint32_t> seen_;  // by block id: the last walk that met it
  std::uint32_t num_walks_ = 0;
};

}  // namespace folio
