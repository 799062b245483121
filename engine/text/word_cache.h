// The words of one text that were merged already, so that a common word is merged once: a direct-mapped table into the
// text and its ids. Small texts have none.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace folio {

class WordCache {
 public:
  // The text outlives the cache; `ids` only grows while it is used.
  WordCache(std::size_t text_size, std::vector<TokenId>& ids) : ids_(ids) {
    if (text_size >= kMinText) entries_.resize(std::bit_ceil(std::min(text_size / kMinText, kMaxEntries)));
  }

  // Appends the ids of `word`: those of the last time, else what merge() appends.
  template <class MergeWord>
  void append(std::string_view word, MergeWord&& merge) {
    if (entries_.empty() || word.size() > kMaxWord) {
      merge();
      return;
    }
    Entry& entry = entries_[std::hash<std::string_view>{}(word) & (entries_.size() - 1)];
    if (entry.word == word) {
      for (std::size_t i = 0; i < entry.num_ids; ++i) ids_.push_back(ids_[entry.first_id + i]);
      return;
    }
    const std::size_t first = ids_.size();
    merge();
    entry = {word, first, ids_.size() - first};
  }

 private:
  static constexpr std::size_t kMinText = 64;  // bytes; also bytes of text for each entry
  static constexpr std::size_t kMaxEntries = 8192;
  static constexpr std::size_t kMaxWord = 64;  // bytes; longer ones hardly come twice
  struct Entry {
    std::string_view word;  // empty: none, and no word is empty
    std::size_t first_id = 0;
    std::size_t num_ids = 0;
  };

  std::vector<TokenId>& ids_;
  std::vector<Entry> entries_;  // a power of two, or none
};

}  // namespace folio
