// What the sealed blocks contain, as a tree: a content hangs under the content that it continues, the first one under
// the root of its domain. The children of a parent are ordered by their tokens (a treap, C. Aragon, R. Seidel,
// "Randomized search trees"), so that one descent finds the child that equals some tokens or else the one with the
// longest common beginning.
//
//   root of salt "a" ─ [The capital of France is ...] ─ [... Paris. It lies on the ...]
//                    └ [The capital of Spain is ...]
//
// A content is found by its parent's content id and by comparing its tokens, never by a hash of them, and a content id
// is given once: a parent whose block was refilled lends its children to nobody. At most one block holds a content;
// content whose parent goes, goes too, since nothing could find it. Ids and tokens only: who holds a block is the
// pool's matter. No memory is asked for after the constructor, but for new domains. One thread.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace folio {

using ContentId = std::uint64_t;  // 0: none

// A content or a domain's root, and where it stands; it may be gone by now (PrefixIndex::holds).
struct ContentRef {
  ContentId id = 0;
  std::int32_t node = 0;  // block id, or a number above all of them for a root
};

class PrefixIndex {
 public:
  PrefixIndex(std::int32_t num_blocks, std::int32_t block_size);

  // The root of a salt's contents; each open wants one close. A root goes when it is closed and has no content left.
  ContentRef open_domain(std::string_view salt);
  ContentRef find_domain(std::string_view salt) const;  // id 0: there is none
  // One that nobody else can open. Its contents go when it is closed.
  ContentRef open_private_domain();
  // Appends the blocks that lost their content to `dropped`, as drop() does.
  void close_domain(ContentRef root, std::vector<BlockId>& dropped);

  bool holds(ContentRef content) const { return content.id != 0 && at(content.node).id == content.id; }
  ContentRef content(BlockId block) const { return {at(block).id, block}; }  // id 0: not indexed
  // REQUIRES holds(content), and that it is no root.
  ContentRef parent(ContentRef content) const;

  // The child of `parent` that begins with most of `tokens`; nothing if no child has the first one or the parent is
  // gone.
  struct Child {
    ContentRef content;
    std::int32_t num_common = 0;  // at most block_size
  };
  Child best_child(ContentRef parent, std::span<const TokenId> tokens) const;

  // Files a block's tokens (block_size of them) under `parent`. What is filed there already stays: its content is the
  // result, and the block gets none. Likewise nothing is filed under a parent that is gone: the result has id 0.
  ContentRef add(ContentRef parent, std::span<const TokenId> tokens, BlockId block);
  // The block's content goes, and all that hangs under it.
  void drop(BlockId block, std::vector<BlockId>& dropped);

  std::size_t num_domains() const { return roots_.size() - unused_roots_.size(); }
  std::optional<std::string> broken_invariant() const;

 private:
  struct Node {
    ContentId id = 0;
    std::int32_t parent = 0;
    std::int32_t children = 0;  // top of their treap
    std::int32_t left = 0;      // in the parent's treap
    std::int32_t right = 0;
  };
  struct Root {
    std::string salt;
    bool is_private = false;
    std::int32_t num_users = 0;
  };

  Node& at(std::int32_t node) { return nodes_[static_cast<std::size_t>(node)]; }
  const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }
  bool is_root(std::int32_t node) const { return node > num_blocks_; }
  Root& root(std::int32_t node) { return roots_[static_cast<std::size_t>(node - num_blocks_ - 1)]; }
  std::span<const TokenId> tokens(std::int32_t node) const;
  std::int32_t make_root(std::string_view salt, bool is_private);
  void forget_root_if_unused(std::int32_t node);
  void insert(std::int32_t node);
  void remove(std::int32_t node);
  void drop_tree(std::int32_t top, std::vector<BlockId>& dropped);

  const std::int32_t num_blocks_;
  const std::int32_t block_size_;
  ContentId last_id_ = 0;
  std::vector<Node> nodes_;      // 0 is nothing, then the blocks, then the roots
  std::vector<TokenId> tokens_;  // [num_blocks + 1][block_size]
  std::vector<Root> roots_;
  std::vector<std::int32_t> unused_roots_;
  std::unordered_map<std::string, std::int32_t> root_by_salt_;
  std::vector<std::int32_t> stack_;  // of drop_tree
};

}  // namespace folio
