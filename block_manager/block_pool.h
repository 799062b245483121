// The blocks themselves, as numbers: who is free, and how many holders each one has. No float, no device, no mutex:
// one thread. Ids are 1..num_blocks; block 0 is the null block, never handed out and not in any count.
//
//   take() ── head │ free list, intrusive: least recently given back ... most recently │ tail ── give_back()
//
// The free list is in eviction order: what was given back first is handed out first, so that a freed block keeps its
// content for as long as possible.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"

namespace folio {

inline constexpr BlockId kNullBlock = 0;

class BlockPool {
 public:
  // shuffle_seed != 0 shuffles the order in which fresh blocks are handed out: for tests, so that no code can lean on
  // neighbouring ids.
  explicit BlockPool(std::int32_t num_blocks, std::uint64_t shuffle_seed = 0);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  BlockId take();              // one holder. REQUIRES num_free() > 0
  void give_back(BlockId id);  // one holder less; without any the block is free. REQUIRES ref_count(id) > 0

  std::int32_t num_blocks() const { return static_cast<std::int32_t>(blocks_.size()) - 1; }
  std::int32_t num_free() const { return num_free_; }
  std::int32_t ref_count(BlockId id) const { return blocks_[static_cast<std::size_t>(id)].ref_count; }

  // Walks the list: links agree both ways, exactly the blocks without a holder are on it, num_free() is its length.
  // Nothing when all holds, else what does not.
  std::optional<std::string> broken_invariant() const;

 private:
  // The null block is the list's sentinel: its next is the head, its previous the tail.
  struct Block {
    std::int32_t ref_count = 0;
    BlockId previous = kNullBlock;
    BlockId next = kNullBlock;
  };
  Block& at(BlockId id);
  void append(BlockId id);

  std::vector<Block> blocks_;
  std::int32_t num_free_ = 0;
};

}  // namespace folio
