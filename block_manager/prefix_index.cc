#include "block_manager/prefix_index.h"

#include <algorithm>
#include <compare>

#include "base/check.h"

namespace folio {
namespace {

// The treap's heap order. Ids are given in sequence, so they are mixed (the finaliser of SplitMix64).
std::uint64_t rank(ContentId id) {
  id = (id ^ (id >> 30)) * 0xbf58476d1ce4e5b9;
  id = (id ^ (id >> 27)) * 0x94d049bb133111eb;
  return id ^ (id >> 31);
}

std::size_t num_common(std::span<const TokenId> a, std::span<const TokenId> b) {
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t i = 0;
  while (i < most && a[i] == b[i]) ++i;
  return i;
}

bool less(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

}  // namespace

PrefixIndex::PrefixIndex(std::int32_t num_blocks, std::int32_t block_size)
    : num_blocks_(num_blocks), block_size_(block_size) {
  nodes_.resize(static_cast<std::size_t>(num_blocks) + 1);
  tokens_.resize((static_cast<std::size_t>(num_blocks) + 1) * static_cast<std::size_t>(block_size));
  stack_.reserve(static_cast<std::size_t>(num_blocks));
}

std::span<const TokenId> PrefixIndex::tokens(std::int32_t node) const {
  const auto size = static_cast<std::size_t>(block_size_);
  return std::span(tokens_).subspan(static_cast<std::size_t>(node) * size, size);
}

// ---- domains

std::int32_t PrefixIndex::make_root(std::string_view salt, bool is_private) {
  if (unused_roots_.empty()) {
    unused_roots_.push_back(static_cast<std::int32_t>(nodes_.size()));
    nodes_.emplace_back();
    roots_.emplace_back();
  }
  const std::int32_t node = unused_roots_.back();
  unused_roots_.pop_back();
  at(node) = {.id = ++last_id_};
  root(node) = {std::string(salt), is_private, 0};
  return node;
}

ContentRef PrefixIndex::open_domain(std::string_view salt) {
  const auto [found, is_new] = root_by_salt_.try_emplace(std::string(salt), 0);
  if (is_new) found->second = make_root(salt, false);
  ++root(found->second).num_users;
  return {at(found->second).id, found->second};
}

ContentRef PrefixIndex::find_domain(std::string_view salt) const {
  const auto found = root_by_salt_.find(std::string(salt));
  return found == root_by_salt_.end() ? ContentRef{} : ContentRef{at(found->second).id, found->second};
}

ContentRef PrefixIndex::open_private_domain() {
  const std::int32_t node = make_root({}, true);
  ++root(node).num_users;
  return {at(node).id, node};
}

void PrefixIndex::close_domain(ContentRef domain, std::vector<BlockId>& dropped) {
  FOLIO_CHECK(holds(domain) && is_root(domain.node) && root(domain.node).num_users > 0, "an open domain is closed");
  const bool last = --root(domain.node).num_users == 0;
  if (last && root(domain.node).is_private) {
    const std::int32_t top = at(domain.node).children;
    at(domain.node).children = 0;
    drop_tree(top, dropped);
  }
  forget_root_if_unused(domain.node);
}

void PrefixIndex::forget_root_if_unused(std::int32_t node) {
  if (root(node).num_users > 0 || at(node).children != 0) return;
  if (!root(node).is_private) root_by_salt_.erase(root(node).salt);
  root(node) = {};
  at(node) = {};
  unused_roots_.push_back(node);
}

// ---- contents

ContentRef PrefixIndex::parent(ContentRef content) const {
  const std::int32_t node = at(content.node).parent;
  return {at(node).id, node};
}

// The tokens' neighbours in the order are met on the way down, and no child has more in common than a neighbour.
PrefixIndex::Child PrefixIndex::best_child(ContentRef parent, std::span<const TokenId> wanted) const {
  Child best;
  if (!holds(parent)) return best;
  wanted = wanted.first(std::min(wanted.size(), static_cast<std::size_t>(block_size_)));
  for (std::int32_t node = at(parent.node).children; node != 0;) {
    const std::span<const TokenId> own = tokens(node);
    const std::size_t common = num_common(own, wanted);
    if (common > static_cast<std::size_t>(best.num_common)) {
      best = {{at(node).id, node}, static_cast<std::int32_t>(common)};
    }
    if (common == wanted.size()) break;
    node = wanted[common] < own[common] ? at(node).left : at(node).right;
  }
  return best;
}

ContentRef PrefixIndex::add(ContentRef parent, std::span<const TokenId> content, BlockId block) {
  FOLIO_CHECK(content.size() == static_cast<std::size_t>(block_size_), "a full block is filed");
  if (!holds(parent)) return {};
  const Child there = best_child(parent, content);
  if (there.num_common == block_size_) return there.content;
  FOLIO_CHECK(at(block).id == 0, "a block has one content");
  std::copy(content.begin(), content.end(),
            tokens_.begin() + static_cast<std::ptrdiff_t>(block) * static_cast<std::ptrdiff_t>(block_size_));
  at(block) = {.id = ++last_id_, .parent = parent.node};
  insert(block);
  return {last_id_, block};
}

void PrefixIndex::drop(BlockId block, std::vector<BlockId>& dropped) {
  const std::int32_t parent = at(block).parent;
  remove(block);
  drop_tree(block, dropped);
  if (is_root(parent)) forget_root_if_unused(parent);
}

// ---- the treap of a parent's children

void PrefixIndex::insert(std::int32_t node) {
  const std::span<const TokenId> key = tokens(node);
  std::int32_t* link = &at(at(node).parent).children;
  while (*link != 0 && rank(at(*link).id) > rank(at(node).id)) {
    link = less(key, tokens(*link)) ? &at(*link).left : &at(*link).right;
  }
  std::int32_t rest = *link;
  *link = node;
  std::int32_t* low = &at(node).left;
  std::int32_t* high = &at(node).right;
  while (rest != 0) {
    if (less(tokens(rest), key)) {
      *low = rest;
      low = &at(rest).right;
      rest = *low;
    } else {
      *high = rest;
      high = &at(rest).left;
      rest = *high;
    }
  }
  *low = *high = 0;
}

// Out of its parent's treap; its own children stay under it.
void PrefixIndex::remove(std::int32_t node) {
  const std::span<const TokenId> key = tokens(node);
  std::int32_t* link = &at(at(node).parent).children;
  while (*link != node) {
    FOLIO_CHECK(*link != 0, "a content is among its parent's children");
    link = less(key, tokens(*link)) ? &at(*link).left : &at(*link).right;
  }
  std::int32_t low = at(node).left;
  std::int32_t high = at(node).right;
  while (low != 0 && high != 0) {
    if (rank(at(low).id) > rank(at(high).id)) {
      *link = low;
      link = &at(low).right;
      low = *link;
    } else {
      *link = high;
      link = &at(high).left;
      high = *link;
    }
  }
  *link = low != 0 ? low : high;
  at(node).left = at(node).right = 0;
}

// A node with its siblings below it in the treap, and all that hangs under them.
void PrefixIndex::drop_tree(std::int32_t top, std::vector<BlockId>& dropped) {
  if (top != 0) stack_.push_back(top);
  while (!stack_.empty()) {
    const std::int32_t node = stack_.back();
    stack_.pop_back();
    for (std::int32_t next : {at(node).left, at(node).right, at(node).children}) {
      if (next != 0) stack_.push_back(next);
    }
    at(node) = {};
    dropped.push_back(node);
  }
}

std::optional<std::string> PrefixIndex::broken_invariant() const {
  // Every block that has a content is met once, walking down from the roots; every treap is in both of its orders.
  std::vector<std::int32_t> stack;
  std::size_t num_met = 0;
  const auto num_nodes = static_cast<std::int32_t>(nodes_.size());
  for (std::int32_t node = num_blocks_ + 1; node < num_nodes; ++node) {
    if (at(node).children != 0) stack.push_back(at(node).children);
    if (at(node).children != 0 && at(node).id == 0) return "prefix index: a root without an id has children";
  }
  while (!stack.empty()) {
    const std::int32_t node = stack.back();
    stack.pop_back();
    const std::string name = "prefix index: block " + std::to_string(node);
    if (is_root(node) || at(node).id == 0) return name + " is no content";
    if (++num_met > static_cast<std::size_t>(num_blocks_)) return "prefix index: it has a loop";
    for (std::int32_t next : {at(node).left, at(node).right}) {
      if (next == 0) continue;
      if (at(next).parent != at(node).parent) return name + " has a sibling of another parent";
      if (rank(at(next).id) > rank(at(node).id)) return name + " is above a higher rank";
      if (less(tokens(node), tokens(next)) != (next == at(node).right)) return name + " is not in the order of tokens";
      stack.push_back(next);
    }
    if (at(node).children != 0) {
      if (at(at(node).children).parent != node) return name + " has a child of another parent";
      stack.push_back(at(node).children);
    }
  }
  const auto num_contents =
      std::count_if(nodes_.begin() + 1, nodes_.begin() + num_blocks_ + 1, [](const Node& n) { return n.id != 0; });
  if (static_cast<std::size_t>(num_contents) != num_met) return "prefix index: a content cannot be found";
  return std::nullopt;
}

}  // namespace folio
