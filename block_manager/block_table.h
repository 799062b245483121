// A sequence's row of block ids: position p lives in block ids()[p / block_size]. Move-only; the blocks go back to the
// pool when the table goes, the last one first, so that a later reuse of freed blocks eats a prefix from its end.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "block_manager/block_pool.h"

namespace folio {

class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}  // the pool outlives the table
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&& other) noexcept;  // leaves `other` empty and usable
  BlockTable& operator=(BlockTable&& other) noexcept;

  // At least `num_blocks` blocks from now on: all that are missing, or none (false).
  bool grow_to(std::int32_t num_blocks);
  void clear();

  std::int32_t size() const { return static_cast<std::int32_t>(ids_.size()); }
  std::span<const BlockId> ids() const { return ids_; }

 private:
  BlockPool* pool_;
  std::vector<BlockId> ids_;
};

}  // namespace folio
