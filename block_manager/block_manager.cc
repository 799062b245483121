#include "block_manager/block_manager.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace folio {

BlockManager::BlockManager(std::int32_t num_blocks, std::int32_t block_size, std::uint64_t shuffle_seed)
    : pool_(num_blocks, shuffle_seed),
      index_(num_blocks, block_size),
      block_size_(block_size),
      visits_(static_cast<std::size_t>(num_blocks) + 1) {
  FOLIO_CHECK(block_size >= 1, "a block has at least one slot");
  dropped_.reserve(static_cast<std::size_t>(num_blocks));
}

void BlockManager::close_domain(ContentRef root) {
  index_.close_domain(root, dropped_);
  clear_dropped();
}

void BlockManager::clear_dropped() {
  for (BlockId block : dropped_) pool_.set_indexed(block, false);
  dropped_.clear();
}

BlockId BlockManager::take() {
  const BlockId block = pool_.take();
  if (pool_.is_indexed(block)) {
    index_.drop(block, dropped_);
    clear_dropped();
  }
  return block;
}

// fn(content) for each cached block, from the one under `tip` on, of the longest run that begins with these tokens.
template <class Fn>
void BlockManager::for_each_cached(ContentRef tip, std::span<const TokenId> tokens, Fn&& fn) const {
  while (tokens.size() >= static_cast<std::size_t>(block_size_)) {
    const PrefixIndex::Child child = index_.best_child(tip, tokens);
    if (child.num_common < block_size_) break;
    tip = child.content;
    fn(tip);
    tokens = tokens.subspan(static_cast<std::size_t>(block_size_));
  }
}

std::int64_t BlockManager::adopt(BlockTable& table, std::span<const TokenId> tokens) {
  FOLIO_CHECK(table.size() == 0, "an empty table adopts");
  for_each_cached(table.tip_, tokens, [&](ContentRef content) {
    hold(content.node, table);
    table.tip_ = content;
  });
  table.num_sealed_ = table.size();
  return std::int64_t{table.size()} * block_size_;
}

std::int64_t BlockManager::num_cached_tokens(std::string_view salt, std::span<const TokenId> tokens) const {
  std::int64_t num_cached = 0;
  for_each_cached(index_.find_domain(salt), tokens, [&](ContentRef) { num_cached += block_size_; });
  return num_cached;
}

PartialHit BlockManager::partial_hit(const BlockTable& table, std::span<const TokenId> rest) const {
  const PrefixIndex::Child child = index_.best_child(table.tip_, rest);
  return {child.content.node, child.num_common};
}

bool BlockManager::make_room(BlockTable& table, std::int64_t num_tokens) {
  const std::int32_t wanted = blocks_for(num_tokens);
  if (wanted - table.size() > pool_.num_available()) return false;
  while (table.size() < wanted) table.ids_.push_back(take());
  return true;
}

BlockTable BlockManager::fork(const BlockTable& table, std::int64_t num_tokens) {
  const std::int32_t num_shared = blocks_for(num_tokens);
  const std::int64_t num_sealed = std::int64_t{table.num_sealed_} * block_size_;
  FOLIO_CHECK(num_shared <= table.size() && num_sealed <= num_tokens, "a fork shares what is there");
  BlockTable copy = make_table(table.tip_);
  copy.ids_.reserve(table.ids_.capacity());
  for (BlockId block : table.ids().first(static_cast<std::size_t>(num_shared))) hold(block, copy);
  copy.num_sealed_ = table.num_sealed_;
  return copy;
}

bool BlockManager::is_writable(const BlockTable& table, std::int64_t position) const {
  const BlockId block = table.ids()[static_cast<std::size_t>(position / block_size_)];
  return pool_.ref_count(block) == 1 && !pool_.is_indexed(block);
}

bool BlockManager::is_writable(const BlockTable& table, std::int64_t position, const BlockTable& sources) const {
  const BlockId block = table.ids()[static_cast<std::size_t>(position / block_size_)];
  const auto for_copies = std::count(sources.ids_.begin(), sources.ids_.end(), block);
  return pool_.ref_count(block) - for_copies == 1 && !pool_.is_indexed(block);
}

BlockId BlockManager::make_writable(BlockTable& table, std::int64_t position, BlockTable& sources) {
  BlockId& block = table.ids_[static_cast<std::size_t>(position / block_size_)];
  FOLIO_CHECK(position / block_size_ >= table.num_sealed_, "a sealed block is not written again");
  const BlockId source = std::exchange(block, take());
  sources.ids_.push_back(source);  // the table's hold, handed over
  return source;
}

void BlockManager::hold(BlockId block, BlockTable& sources) {
  pool_.hold(block);
  sources.ids_.push_back(block);
}

void BlockManager::seal(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed) {
  const auto size = static_cast<std::size_t>(block_size_);
  for (; (table.num_sealed_ + std::int64_t{1}) * block_size_ <= num_computed; ++table.num_sealed_) {
    const auto i = static_cast<std::size_t>(table.num_sealed_);
    const BlockId block = table.ids_[i];
    table.tip_ = index_.add(table.tip_, tokens.subspan(i * size, size), block);
    if (table.tip_.id != 0 && table.tip_.node == block && !pool_.is_indexed(block)) pool_.set_indexed(block, true);
  }
}

void BlockManager::forget(const BlockTable& table) {
  for (BlockId block : table.ids()) {
    if (pool_.is_indexed(block)) index_.drop(block, dropped_);
    clear_dropped();
  }
}

void BlockManager::flush(std::span<const std::int32_t> keep) {
  for (BlockId block = 1; block <= num_blocks(); ++block) {
    if (!pool_.is_indexed(block) || keep[static_cast<std::size_t>(block)] > 0) continue;
    index_.drop(block, dropped_);
    clear_dropped();
  }
}

BlockTable BlockManager::chain(ContentRef tip) {
  FOLIO_CHECK(index_.holds(tip), "a chain's tip is indexed");
  BlockTable table = make_table(tip);
  for (ContentRef content = tip; content.node <= num_blocks(); content = index_.parent(content)) {
    hold(content.node, table);
  }
  std::reverse(table.ids_.begin(), table.ids_.end());
  table.num_sealed_ = table.size();
  return table;
}

ContentRef BlockManager::content_of(const BlockTable& table, std::int32_t num_blocks) const {
  if (num_blocks > table.num_sealed_ || !index_.holds(table.tip_)) return {};
  ContentRef content = table.tip_;
  for (std::int32_t i = table.num_sealed_; i > num_blocks; --i) content = index_.parent(content);
  return content;
}

// ---- walks over tables

void BlockManager::begin_walk() {
  if (++num_walks_ != 0) return;
  std::fill(visits_.begin(), visits_.end(), Visit{});  // after four thousand million walks
  num_walks_ = 1;
}

// How often this walk met the block by now.
std::int32_t BlockManager::meet(BlockId block) {
  Visit& visit = visits_[static_cast<std::size_t>(block)];
  if (visit.walk != num_walks_) visit = {num_walks_, 0};
  return ++visit.times;
}

std::int32_t BlockManager::num_released_by(std::span<const BlockTable* const> tables) {
  begin_walk();
  std::int32_t released = 0;
  for (const BlockTable* table : tables) {
    for (BlockId block : table->ids()) released += meet(block) == pool_.ref_count(block) ? 1 : 0;
  }
  return released;
}

std::int32_t BlockManager::num_distinct(std::span<const BlockTable* const> tables) {
  std::int32_t distinct = 0;
  for_each_distinct(tables, [&](std::size_t, std::size_t) { ++distinct; });
  return distinct;
}

BlockCounts BlockManager::count(std::span<const BlockTable* const> tables) {
  BlockCounts counts;
  counts.total = num_blocks();
  counts.free = num_free();
  counts.cached = num_cached();
  counts.held = num_distinct(tables);
  counts.unaccounted = counts.total - counts.free - counts.held - counts.cached;
  return counts;
}

std::optional<std::string> BlockManager::broken_invariant(std::span<const BlockTable* const> tables) {
  if (auto broken = pool_.broken_invariant()) return broken;
  if (auto broken = index_.broken_invariant()) return broken;
  begin_walk();
  for (const BlockTable* table : tables) {
    for (BlockId block : table->ids()) meet(block);
  }
  for (BlockId id = 1; id <= num_blocks(); ++id) {
    const Visit& visit = visits_[static_cast<std::size_t>(id)];
    const std::int32_t references = visit.walk == num_walks_ ? visit.times : 0;
    if (references != pool_.ref_count(id)) {
      return "block " + std::to_string(id) + ": " + std::to_string(pool_.ref_count(id)) + " holders counted, " +
             std::to_string(references) + " tables name it";
    }
    if (pool_.is_indexed(id) != (index_.content(id).id != 0)) {
      return "block " + std::to_string(id) + ": the pool and the prefix index disagree whether it is indexed";
    }
  }
  const BlockCounts counts = count(tables);
  if (counts.unaccounted != 0) return std::to_string(counts.unaccounted) + " blocks are unaccounted for";
  return std::nullopt;
}

}  // namespace folio
