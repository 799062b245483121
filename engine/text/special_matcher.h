// Finds the spellings of special tokens in a text: leftmost first, of those the longest, as Hugging Face's tokenizers
// and SentencePiece do (llama.cpp takes the longest anywhere first, which differs only where two spellings overlap).
// A trie: the cost per byte is bounded by the longest spelling, whatever the number of tokens. Built once, then any
// thread may read.
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace folio {

class SpecialMatcher {
 public:
  SpecialMatcher() { nodes_.emplace_back(); }

  void add(std::string_view spelling, TokenId id);  // not empty; the first id of a spelling stays

  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
    TokenId id = -1;  // -1: none
  };
  Match find(std::string_view text, std::size_t from) const;

 private:
  struct Node {
    TokenId id = -1;  // of the spelling that ends here
    std::int32_t first_child = -1;
    std::int32_t next_sibling = -1;
    char byte = 0;
  };
  std::int32_t child(std::int32_t node, char byte) const;

  std::vector<Node> nodes_;                   // 0 is the root; its children are found through first_
  std::array<std::int32_t, 256> first_ = {};  // root's child by byte; 0: none
};

}  // namespace folio
