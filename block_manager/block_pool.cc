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
  std::iota(order.rbegin(), order.rend(), 1);
  if (shuffle_seed != 0) std::shuffle(order.begin(), order.end(), std::mt19937_64(shuffle_seed));
  for (BlockId id : order) link(id);
}

BlockPool::Block& BlockPool::at(BlockId id) {
  FOLIO_CHECK(id > kNullBlock && id <= num_blocks(), "block id outside of the pool");
  return blocks_[static_cast<std::size_t>(id)];
}

// A cached block at the tail, a free one at the head.
void BlockPool::link(BlockId id) {
  Block& block = at(id);
  Block& null = blocks_[kNullBlock];
  block.previous = block.indexed ? null.previous : kNullBlock;
  block.next = block.indexed ? kNullBlock : null.next;
  blocks_[static_cast<std::size_t>(block.previous)].next = id;
  blocks_[static_cast<std::size_t>(block.next)].previous = id;
  ++num_available_;
  num_cached_ += block.indexed ? 1 : 0;
}

void BlockPool::unlink(BlockId id) {
  const Block& block = at(id);
  blocks_[static_cast<std::size_t>(block.previous)].next = block.next;
  blocks_[static_cast<std::size_t>(block.next)].previous = block.previous;
  --num_available_;
  num_cached_ -= block.indexed ? 1 : 0;
}

BlockId BlockPool::take() {
  const BlockId id = blocks_[kNullBlock].next;
  FOLIO_CHECK(id != kNullBlock, "a block was taken from an empty pool");
  FOLIO_CHECK(at(id).ref_count == 0, "an available block has no holder");
  unlink(id);
  at(id).ref_count = 1;
  ++num_held_;
  return id;
}

void BlockPool::hold(BlockId id) {
  Block& block = at(id);
  FOLIO_CHECK(block.ref_count > 0 || block.indexed, "a block without content was held again");
  if (block.ref_count == 0) {
    unlink(id);
    ++num_held_;
  }
  ++block.ref_count;
}

void BlockPool::give_back(BlockId id) {
  Block& block = at(id);
  FOLIO_CHECK(block.ref_count > 0, "a block was given back that nobody holds");
  if (--block.ref_count > 0) return;
  link(id);
  --num_held_;
}

void BlockPool::set_indexed(BlockId id, bool indexed) {
  Block& block = at(id);
  FOLIO_CHECK(block.ref_count > 0 || !indexed, "content is indexed while somebody holds the block");
  if (block.ref_count == 0) unlink(id);
  block.indexed = indexed;
  if (block.ref_count == 0) link(id);
}

std::optional<std::string> BlockPool::broken_invariant() const {
  std::int32_t length = 0;
  std::int32_t cached = 0;
  BlockId previous = kNullBlock;
  for (BlockId id = blocks_[kNullBlock].next; id != kNullBlock; id = blocks_[static_cast<std::size_t>(id)].next) {
    const Block& block = blocks_[static_cast<std::size_t>(id)];
    if (block.previous != previous) return "free list: block " + std::to_string(id) + " has a wrong back link";
    if (block.ref_count != 0) return "free list: block " + std::to_string(id) + " has a holder";
    if (!block.indexed && cached > 0) return "free list: block " + std::to_string(id) + " is free, behind a cached one";
    if (++length > num_blocks()) return "free list: it has a loop";
    cached += block.indexed ? 1 : 0;
    previous = id;
  }
  if (blocks_[kNullBlock].previous != previous) return "free list: wrong tail";
  if (length != num_available_ || cached != num_cached_) {
    return "free list: " + std::to_string(length) + " blocks, " + std::to_string(cached) + " cached; counted " +
           std::to_string(num_available_) + " and " + std::to_string(num_cached_);
  }
  if (num_held_ + length != num_blocks()) return "a wrong count of blocks with a holder";
  const auto unheld =
      std::count_if(blocks_.begin() + 1, blocks_.end(), [](const Block& b) { return b.ref_count == 0; });
  if (unheld != length) {
    return std::to_string(unheld) + " blocks have no holder, but " + std::to_string(length) + " are in the list";
  }
  return std::nullopt;
}

}  // namespace folio
