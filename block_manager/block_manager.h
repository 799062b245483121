// Block arithmetic, the pool and the prefix index behind a few verbs: reuse what is cached, make room for N tokens,
// make a slot writable, seal what is full, fork. Knows tables, tokens and counts, no sequences, no requests. One
// thread.
//
// The life of a block:
//
//              make_room                 full and computed: seal
//   free ─────────────────────> held ─────────────────────────────> held, indexed
//    ^   <────── given back ───   ^   <───────── forgotten ────────    │      ^
//    │                            │                         given back │      │ adopt
//    │                            │                                    v      │
//    │                            └─ evicted and taken for another ──── cached
//    └─────────────────────────────────── forgotten ─────────────────────┘
//
// Evicted is the least recently used, tails before heads. Forgotten is what is flushed, what a private domain had, and
// what continues content that is forgotten or evicted. A pin holds like a table, and so does a copy to come its source.
// A slot is written only in a block with one holder and no index entry: a table that would write elsewhere gets a copy
// first (make_writable). Content is found by tokens that were compared, and is indexed only after it was computed.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "block_manager/block_pool.h"
#include "block_manager/block_table.h"
#include "block_manager/prefix_index.h"

namespace folio {

// free + held + cached == total, unless a block was lost: then unaccounted says how many.
struct BlockCounts {
  std::int32_t total = 0;
  std::int32_t free = 0;
  std::int32_t held = 0;    // distinct blocks that the given tables name: counted there, never by subtraction
  std::int32_t cached = 0;  // held by nobody, content kept for reuse
  std::int32_t unaccounted = 0;
};

// A block whose first tokens are those that are wanted next.
struct PartialHit {
  BlockId block = kNullBlock;
  std::int32_t num_tokens = 0;  // 0: none
};

class BlockManager {
 public:
  BlockManager(std::int32_t num_blocks, std::int32_t block_size, std::uint64_t shuffle_seed = 0);

  // Who shares content with whom: see PrefixIndex. A private domain's content goes when it is closed.
  ContentRef open_domain(std::string_view salt) { return index_.open_domain(salt); }
  ContentRef open_private_domain() { return index_.open_private_domain(); }
  void close_domain(ContentRef root);

  BlockTable make_table(ContentRef root) { return BlockTable(pool_, root); }
  // The empty table holds the longest run of cached blocks that begins with these tokens; how many tokens that is.
  std::int64_t adopt(BlockTable& table, std::span<const TokenId> tokens);
  // How many of these tokens a table of this salt could adopt.
  std::int64_t num_cached_tokens(std::string_view salt, std::span<const TokenId> tokens) const;
  // The cached block that continues the table best for `rest`, less than a block or of which not all is wanted. To be
  // copied (copy_of) before anything else is asked of the manager.
  PartialHit partial_hit(const BlockTable& table, std::span<const TokenId> rest) const;
  // Idempotent: the table covers positions [0, num_tokens) from now on, or nothing changed (false).
  bool make_room(BlockTable& table, std::int64_t num_tokens);
  // A table that holds the same blocks for positions [0, num_tokens), with as much memory set aside. REQUIRES that
  // `table` covers them, and that they are not less than what it sealed.
  BlockTable fork(const BlockTable& table, std::int64_t num_tokens);
  // Whether the slot of a position that the table covers may be written.
  bool is_writable(const BlockTable& table, std::int64_t position) const;
  // The same in a step that first makes its copies from `sources`, which then need the block no more.
  bool is_writable(const BlockTable& table, std::int64_t position, const BlockTable& sources) const;
  // The table gets a block of its own for the position: what it is to be copied from, which `sources` holds from now
  // on. REQUIRES num_available() > 0.
  BlockId make_writable(BlockTable& table, std::int64_t position, BlockTable& sources);
  // `sources` holds the block too, for as long as a copy from it is to come. REQUIRES that it is held or indexed.
  void hold(BlockId block, BlockTable& sources);
  // Indexes the table's blocks that are full with the first num_computed of these tokens. Blocks of content that is
  // indexed already stay without an entry, and what follows them hangs under the one that is there.
  void seal(BlockTable& table, std::span<const TokenId> tokens, std::int64_t num_computed);
  // The table's blocks lose their entries, and so does all that continues them.
  void forget(const BlockTable& table);
  // All content is forgotten but that of blocks for which keep[block id] > 0.
  void flush(std::span<const std::int32_t> keep);
  // A table of the blocks that hold a content and all before it, root first. REQUIRES holds(tip).
  BlockTable chain(ContentRef tip);
  // Of the first num_blocks blocks of a table; id 0 when they are not all sealed and indexed.
  ContentRef content_of(const BlockTable& table, std::int32_t num_blocks) const;
  bool holds(ContentRef content) const { return index_.holds(content); }

  std::int32_t blocks_for(std::int64_t num_tokens) const {
    return static_cast<std::int32_t>((num_tokens + block_size_ - 1) / block_size_);
  }
  std::int32_t block_size() const { return block_size_; }
  std::int32_t num_blocks() const { return pool_.num_blocks(); }
  std::int32_t num_available() const { return pool_.num_available(); }  // free or cached: what make_room can take
  std::int32_t num_free() const { return pool_.num_available() - pool_.num_cached(); }
  std::int32_t num_cached() const { return pool_.num_cached(); }
  std::int32_t num_held() const { return pool_.num_held(); }  // a lost one too, which no table names
  std::int32_t ref_count(BlockId block) const { return pool_.ref_count(block); }
  bool is_sealed(BlockId block) const { return pool_.is_indexed(block); }
  // How many blocks would become available if these tables were cleared.
  std::int32_t num_released_by(std::span<const BlockTable* const> tables);
  // Distinct blocks of these tables.
  std::int32_t num_distinct(std::span<const BlockTable* const> tables);

  // fn(table, i) for each block that tables[table]->ids()[i] names and that was not met before.
  template <class Fn>
  void for_each_distinct(std::span<const BlockTable* const> tables, Fn&& fn) {
    begin_walk();
    for (std::size_t t = 0; t < tables.size(); ++t) {
      const auto ids = tables[t]->ids();
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (meet(ids[i]) == 1) fn(t, i);
      }
    }
  }

  // Both want every table that is alive. count() costs what the tables hold, whatever the size of the pool.
  BlockCounts count(std::span<const BlockTable* const> tables);
  // free + held + cached == total; every block has as many holders as tables name it; list and index are whole and
  // agree. Nothing when all holds, else what does not.
  std::optional<std::string> broken_invariant(std::span<const BlockTable* const> tables);

 private:
  template <class Fn>
  void for_each_cached(ContentRef tip, std::span<const TokenId> tokens, Fn&& fn) const;
  BlockId take();
  void clear_dropped();
  void begin_walk();
  std::int32_t meet(BlockId block);

  BlockPool pool_;
  PrefixIndex index_;
  const std::int32_t block_size_;
  std::vector<BlockId> dropped_;  // by the index, not yet known to the pool

  // Of walks over tables.
  struct Visit {
    std::uint32_t walk = 0;
    std::int32_t times = 0;
  };
  std::vector<Visit> visits_;  // by block id
  std::uint32_t num_walks_ = 0;
};

}  // namespace folio
