#include "block_manager/block_manager.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace folio {

BlockManager::BlockManager(std::int32_t num_blocks, std::int32_t block_size, std::uint64_t shuffle_seed)
    : pool_(num_blocks, shuffle_seed), block_size_(block_size), seen_(static_cast<std::size_t>(num_blocks) + 1, 0) {
  FOLIO_CHECK(block_size >= 1, "a block has at least one slot");
}

BlockCounts BlockManager::count(std::span<const BlockTable* const> tables) {
  if (++num_walks_ == 0) {  // after four thousand million walks
    std::fill(seen_.begin(), seen_.end(), 0);
    num_walks_ = 1;
  }
  BlockCounts counts;
  counts.total = num_blocks();
  counts.free = num_free();
  for (const BlockTable* table : tables) {
    for (BlockId id : table->ids()) {
      counts.held += std::exchange(seen_[static_cast<std::size_t>(id)], num_walks_) != num_walks_ ? 1 : 0;
    }
  }
  counts.unaccounted = counts.total - counts.free - counts.held - counts.cached;
  return counts;
}

std::optional<std::string> BlockManager::broken_invariant(std::span<const BlockTable* const> tables) {
  if (auto broken = pool_.broken_invariant()) return broken;
  std::vector<std::int32_t> references_by_id(static_cast<std::size_t>(num_blocks()) + 1, 0);
  for (const BlockTable* table : tables) {
    for (BlockId id : table->ids()) ++references_by_id[static_cast<std::size_t>(id)];
  }
  for (BlockId id = 1; id <= num_blocks(); ++id) {
    const std::int32_t references = references_by_id[static_cast<std::size_t>(id)];
    if (references != pool_.ref_count(id)) {
      return "block " + std::to_string(id) + ": " + std::to_string(pool_.ref_count(id)) + " holders counted, " +
             std::to_string(references) + " tables name it";
    }
  }
  const BlockCounts counts = count(tables);
  if (counts.unaccounted != 0) return std::to_string(counts.unaccounted) + " blocks are unaccounted for";
  return std::nullopt;
}

}  // namespace folio
