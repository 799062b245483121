// A sequence's row of block ids: position p lives in block ids()[p / block_size]. Move-only; the blocks go back to the
// pool when the table goes, the last one first, so that a later reuse of cached blocks eats a prefix from its end.
// Whole blocks may be shared with other tables; how a table comes to its blocks is BlockManager's. (One row a layer
// group, when there will be more than one group.) One thread.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "block_manager/block_pool.h"
#include "block_manager/prefix_index.h"

namespace folio {

class BlockTable {
 public:
  ~BlockTable() { clear(); }
  BlockTable(BlockTable&& other) noexcept;  // leaves `other` empty
  BlockTable& operator=(BlockTable&& other) noexcept;

  void clear();
  void reserve(std::int32_t num_blocks) { ids_.reserve(static_cast<std::size_t>(num_blocks)); }

  std::int32_t size() const { return static_cast<std::int32_t>(ids_.size()); }
  std::span<const BlockId> ids() const { return ids_; }
  std::int32_t num_sealed() const { return num_sealed_; }  // its first blocks, full and computed
  // Of the last sealed block, or the domain's root: what the next block is filed under. It may be gone.
  ContentRef tip() const { return tip_; }

 private:
  friend class BlockManager;
  BlockTable(BlockPool& pool, ContentRef root) : pool_(&pool), tip_(root) {}

  BlockPool* pool_;  // outlives the table
  std::vector<BlockId> ids_;
  std::int32_t num_sealed_ = 0;
  ContentRef tip_;
};

}  // namespace folio
