// Control tokens in a rendered chat prompt: those that the template wrote are control tokens, the same characters in a
// caller's string are text.
//
// A caller's string is marked before it goes into the template: a non-character is put into every control spelling in
// it, and at an edge where the string could make up a spelling together with what the template puts beside it. A
// spelling in the rendered text that has no mark in it is thus the template's own. Whatever the template does with a
// marked string (cut it, trim it, put it elsewhere), no piece of it holds a whole spelling without a mark.
//
//   U+FDD0  no spelling goes across this place
//   U+FDD1  the character before is text, though it is the spelling of a control token
//   U+FDD2  then U+FDD3, U+FDD4, U+FDD5: the caller's own U+FDD0, U+FDD1, U+FDD2
//
// Not covered: a template that puts a caller's string into the middle of a spelling ('<|' + role + '|>') writes it.
#pragma once
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace folio {

// Strings with a number each, looked through from the front one byte at a time.
class SpellingSet {
 public:
  struct Entry {
    std::string text;
    TokenId id;
  };
  // Texts are not empty; of equal ones the lowest id stays.
  explicit SpellingSet(std::vector<Entry> entries);

  // The entries that begin with the bytes taken so far: entries()[begin, end), the shortest first.
  struct Range {
    std::size_t begin;
    std::size_t end;
    std::size_t depth;  // bytes taken
    bool empty() const { return begin == end; }
  };
  Range all() const { return {0, entries_.size(), 0}; }
  Range take(Range range, char byte) const;
  // The entry that is exactly the bytes taken, or null.
  const Entry* exact(Range range) const;
  bool has_longer(Range range) const { return range.end - range.begin > (exact(range) != nullptr ? 1U : 0U); }
  std::size_t max_size() const { return max_size_; }  // bytes of the longest
  bool has_first(char byte) const { return first_[static_cast<unsigned char>(byte)]; }

 private:
  std::vector<Entry> entries_;  // sorted by text, bytes unsigned
  std::array<bool, 256> first_{};
  std::size_t max_size_ = 0;
};

// Immutable: any thread may call. The tokenizer must outlive it.
class ControlMarks {
 public:
  explicit ControlMarks(const Tokenizer& tokenizer);

  // A caller's string (valid UTF-8) as the template gets it.
  std::string mark(std::string_view text) const;
  // A rendered text as a reader sees it.
  static std::string unmark(std::string_view marked);
  // Appends the ids of a rendered text: the template's control tokens as such, what lies between as plain text.
  void encode(std::string_view marked, std::vector<TokenId>& out) const;

 private:
  const SpellingSet::Entry* match(std::string_view marked, std::size_t position) const;
  bool begins_with_suffix(std::string_view text) const;

  const Tokenizer& tokenizer_;
  SpellingSet forward_;
  SpellingSet backward_;  // the spellings with their bytes reversed
};

}  // namespace folio
