// Exact look-up of byte strings: an open-addressing table of ids over keys that somebody else owns. Built once, then
// any thread may read.
#pragma once
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace folio {

class PieceTable {
 public:
  explicit PieceTable(std::size_t expected_entries) {
    std::size_t size = 16;
    while (size < expected_entries * 2) size *= 2;
    slots_.resize(size);
  }

  // The first id given for a key stays. The key's bytes outlive the table.
  void insert(std::string_view key, TokenId id) {
    if (2 * num_entries_ >= slots_.size()) grow();
    const std::size_t hash = std::hash<std::string_view>{}(key);
    Slot& slot = slots_[slot_of(key, hash)];
    if (slot.id >= 0) return;
    slot = {key, tag_of(hash), id};
    ++num_entries_;
  }

  TokenId find(std::string_view key) const {  // -1: not there
    return slots_[slot_of(key, std::hash<std::string_view>{}(key))].id;
  }

 private:
  struct Slot {
    std::string_view key;
    std::uint32_t tag = 0;
    TokenId id = -1;
  };
  static std::uint32_t tag_of(std::size_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  // Where the key is, or the empty slot where it would be.
  std::size_t slot_of(std::string_view key, std::size_t hash) const {
    for (std::size_t i = hash;; ++i) {
      i &= slots_.size() - 1;
      const Slot& slot = slots_[i];
      if (slot.id < 0 || (slot.tag == tag_of(hash) && slot.key == key)) return i;
    }
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.id >= 0) slots_[slot_of(slot.key, std::hash<std::string_view>{}(slot.key))] = slot;
    }
  }

  std::vector<Slot> slots_;  // a power of two, at most half full
  std::size_t num_entries_ = 0;
};

}  // namespace folio
