// The blocks themselves, as numbers: who is available, and how many holders each one has. No float, no device, no
// mutex: one thread. Ids are 1..num_blocks; block 0 is the null block, never handed out and not in any count.
//
//   take() ── head │ without a holder, intrusive, in eviction order │ tail
//                  │ free ones (no content) │ cached ones: least recently given back ... most recently │
//
// A block without a holder is free, or cached: its content is in the prefix index, and it can be held again for that
// until it is taken for another. The prefix cache is this list: nothing is set aside for it.
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

  BlockId take();              // the first to be evicted; one holder. REQUIRES num_available() > 0
  void hold(BlockId id);       // one holder more, of a block that has some or is cached
  void give_back(BlockId id);  // one holder less; without any it is cached or free. REQUIRES ref_count(id) > 0
  // Whether the prefix index names the block. One without a holder moves when it loses its entry.
  void set_indexed(BlockId id, bool indexed);

  std::int32_t num_blocks() const { return static_cast<std::int32_t>(blocks_.size()) - 1; }
  std::int32_t num_available() const { return num_available_; }  // free and cached
  std::int32_t num_cached() const { return num_cached_; }
  std::int32_t num_held() const { return num_held_; }
  std::int32_t ref_count(BlockId id) const { return blocks_[static_cast<std::size_t>(id)].ref_count; }
  bool is_indexed(BlockId id) const { return blocks_[static_cast<std::size_t>(id)].indexed; }

  // Walks the list: links agree both ways, exactly the blocks without a holder are on it, free ones first, and the
  // counts are right. Nothing when all holds, else what does not.
  std::optional<std::string> broken_invariant() const;

 private:
  // The null block is the list's sentinel: its next is the head, its previous the tail.
  struct Block {
    std::int32_t ref_count = 0;
    bool indexed = false;
    BlockId previous = kNullBlock;
    BlockId next = kNullBlock;
  };
  Block& at(BlockId id);
  void link(BlockId id);
  void unlink(BlockId id);

  std::vector<Block> blocks_;
  std::int32_t num_available_ = 0;
  std::int32_t num_cached_ = 0;
  std::int32_t num_held_ = 0;
};

}  // namespace folio
