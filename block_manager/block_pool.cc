#include "block_manager/block_pool.h"

#include <algorithm>
#include <numeric>
#include <random>

#include "base/check.h"

namespace folio {

BlockPool::BlockPool(std::int32_t num_blocks, std::uint64_t shuffle_seed) {
  FOLIO_CHECK(num_blocks >= 1, "a pool has at least one block");
  blocks_.resize(static_cast<std::size_t>(num_blocks) + 1);
  std::vector<BlockId> order(static_cast<std::size_t>(num_blocks));
  std::iota(order.begin(), order.end(), 1);
  if (shuffle_seed != 0) std::shuffle(order.begin(), order.end(), std::mt19937_64(shuffle_seed));
  for (BlockId id : order) append(id);
}

BlockPool::Block& BlockPool::at(BlockId id) {
  FOLIO_CHECK(id > kNullBlock && id <= num_blocks(), "block id outside of the pool");
  return blocks_[static_cast<std::size_t>(id)];
}

void BlockPool::append(BlockId id) {
  Block& null = blocks_[kNullBlock];
  Block& block = at(id);
  block.previous = null.previous;
  block.next = kNullBlock;
  blocks_[static_cast<std::size_t>(null.previous)].next = id;
  null.previous = id;
  ++num_free_;
}

BlockId BlockPool::take() {
  const BlockId id = blocks_[kNullBlock].next;
  FOLIO_CHECK(id != kNullBlock, "a block was taken from an empty pool");
  Block& block = at(id);
  FOLIO_CHECK(block.ref_count == 0, "a free block has no holder");
  blocks_[kNullBlock].next = block.next;
  blocks_[static_cast<std::size_t>(block.next)].previous = kNullBlock;
  block.ref_count = 1;
  --num_free_;
  return id;
}

void BlockPool::give_back(BlockId id) {
  Block& block = at(id);
  FOLIO_CHECK(block.ref_count > 0, "a block was given back that nobody holds");
  if (--block.ref_count == 0) append(id);
}

std::optional<std::string> BlockPool::broken_invariant() const {
  std::int32_t length = 0;
  BlockId previous = kNullBlock;
  for (BlockId id = blocks_[kNullBlock].next; id != kNullBlock; id = blocks_[static_cast<std::size_t>(id)].next) {
    const Block& block = blocks_[static_cast<std::size_t>(id)];
    if (block.previous != previous) return "free list: block " + std::to_string(id) + " has a wrong back link";
    if (block.ref_count != 0) return "free list: block " + std::to_string(id) + " has a holder";
    if (++length > num_blocks()) return "free list: it has a loop";
    previous = id;
  }
  if (blocks_[kNullBlock].previous != previous) return "free list: wrong tail";
  if (length != num_free_) {
    return "free list: " + std::to_string(length) + " blocks, counted " + std::to_string(num_free_);
  }
  const auto unheld =
      std::count_if(blocks_.begin() + 1, blocks_.end(), [](const Block& b) { return b.ref_count == 0; });
  if (unheld != length) {
    return std::to_string(unheld) + " blocks have no holder, but " + std::to_string(length) + " are free";
  }
  return std::nullopt;
}

}  // namespace folio
