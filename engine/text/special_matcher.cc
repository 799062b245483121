#include "engine/text/special_matcher.h"

namespace folio {

std::int32_t SpecialMatcher::child(std::int32_t node, char byte) const {
  std::int32_t next = nodes_[static_cast<std::size_t>(node)].first_child;
  while (next >= 0 && nodes_[static_cast<std::size_t>(next)].byte != byte) {
    next = nodes_[static_cast<std::size_t>(next)].next_sibling;
  }
  return next;
}

void SpecialMatcher::add(std::string_view spelling, TokenId id) {
  std::int32_t node = 0;
  for (const char byte : spelling) {
    std::int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<std::int32_t>(nodes_.size());
      nodes_.push_back({-1, -1, nodes_[static_cast<std::size_t>(node)].first_child, byte});
      nodes_[static_cast<std::size_t>(node)].first_child = next;
      if (node == 0) first_[static_cast<unsigned char>(byte)] = next;
    }
    node = next;
  }
  TokenId& stored = nodes_[static_cast<std::size_t>(node)].id;
  if (stored < 0) stored = id;
}

SpecialMatcher::Match SpecialMatcher::find(std::string_view text, std::size_t from) const {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::int32_t node = first_[static_cast<unsigned char>(text[begin])];
    if (node == 0) continue;
    Match match;
    for (std::size_t i = begin + 1;; ++i) {
      const TokenId id = nodes_[static_cast<std::size_t>(node)].id;
      if (id >= 0) match = {begin, i, id};
      if (i == text.size() || (node = child(node, text[i])) < 0) break;
    }
    if (match.id >= 0) return match;
  }
  return {};
}

}  // namespace folio
