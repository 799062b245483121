// The one merging loop of both tokenizers: join the neighbouring pair of the lowest priority, of equal ones the
// leftmost, until no pair can be joined. O(n log n): a heap of candidates over a linked list; a candidate that its
// neighbours have overtaken is recognised by its priority and skipped.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace folio {

inline constexpr std::uint32_t kNoMerge = std::numeric_limits<std::uint32_t>::max();

struct Merge {
  std::uint32_t priority = kNoMerge;  // lower is joined first
  std::int32_t symbol = -1;           // what the two become
};

struct MergeNode {
  std::int32_t symbol;  // what stands here, in the words of the one who merges
  std::uint32_t begin;  // bytes [begin, end) of the text
  std::uint32_t end;
  std::int32_t prev = -1;  // index, -1: none
  std::int32_t next = -1;
  Merge with_next = {};  // the candidate of this node and its next
};

// Scratch memory, reused from word to word.
struct MergeWork {
  std::vector<MergeNode> nodes;
  std::vector<std::uint64_t> heap;  // priority << 32 | index of the left node; smallest on top

  void clear() { nodes.clear(); }
  void add(std::int32_t symbol, std::size_t begin, std::size_t end) {
    nodes.push_back({symbol, static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }
};

// find(const MergeNode& left, const MergeNode& right) -> Merge. Afterwards the nodes reached from index 0 by `next` are
// the result. REQUIRES: work.nodes not empty, fewer than 2^31.
template <class Find>
void merge_nodes(MergeWork& work, Find&& find) {
  std::vector<MergeNode>& nodes = work.nodes;
  std::vector<std::uint64_t>& heap = work.heap;
  const auto key = [&](std::int32_t left) {
    return std::uint64_t{nodes[static_cast<std::size_t>(left)].with_next.priority} << 32 |
           static_cast<std::uint32_t>(left);
  };
  const auto consider = [&](std::int32_t left) {
    MergeNode& node = nodes[static_cast<std::size_t>(left)];
    node.with_next = node.next < 0 ? Merge{} : find(node, nodes[static_cast<std::size_t>(node.next)]);
    return node.with_next.priority != kNoMerge;
  };

  heap.clear();
  const auto count = static_cast<std::int32_t>(nodes.size());
  for (std::int32_t i = 0; i < count; ++i) {
    nodes[static_cast<std::size_t>(i)].prev = i - 1;
    nodes[static_cast<std::size_t>(i)].next = i + 1 < count ? i + 1 : -1;
    if (consider(i)) heap.push_back(key(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  while (!heap.empty()) {
    const std::uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto left = static_cast<std::int32_t>(top & 0xFFFFFFFFU);
    MergeNode& node = nodes[static_cast<std::size_t>(left)];
    if (node.with_next.priority != static_cast<std::uint32_t>(top >> 32)) continue;  // overtaken

    MergeNode& right = nodes[static_cast<std::size_t>(node.next)];
    node.symbol = node.with_next.symbol;
    node.end = right.end;
    node.next = right.next;
    if (node.next >= 0) nodes[static_cast<std::size_t>(node.next)].prev = left;
    right.with_next = {};  // gone: its candidate is void
    for (const std::int32_t i : {node.prev, left}) {
      if (i < 0 || !consider(i)) continue;
      heap.push_back(key(i));
      std::push_heap(heap.begin(), heap.end(), std::greater<>());
    }
  }
}

}  // namespace folio
