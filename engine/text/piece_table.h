// Exact look-up of byte strings: an open-addressing table of ids over keys that somebody else owns. Built once, then
// any thread may read.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace folio {

class PieceTable {
 public:
  explicit PieceTable(std::size_t max_entries) {
    std::size_t size = 16;
    while (size < max_entries * 2) size *= 2;
    slots_.resize(size);
  }

  // The first id given for a key stays. The key's bytes outlive the table. At most max_entries keys.
  void insert(std::string_view key, TokenId id) {
    const std::size_t hash = std::hash<std::string_view>{}(key);
    for (std::size_t i = hash;; ++i) {
      Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.id >= 0 && slot.tag == tag_of(hash) && slot.key == key) return;
      if (slot.id >= 0) continue;
      slot = {key, tag_of(hash), id};
      return;
    }
  }

  TokenId find(std::string_view key) const {  // -1: not there
    const std::size_t hash = std::hash<std::string_view>{}(key);
    for (std::size_t i = hash;; ++i) {
      const Slot& slot = slots_[i & (slots_.size() - 1)];
      if (slot.id < 0) return -1;
      if (slot.tag == tag_of(hash) && slot.key == key) return slot.id;
    }
  }

 private:
  struct Slot {
    std::string_view key;
    std::uint32_t tag = 0;
    TokenId id = -1;
  };
  static std::uint32_t tag_of(std::size_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace folio
