#include "engine/text/control_marks.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/text/detokenizer.h"
#include "engine/text/utf8.h"

namespace folio {
namespace {

constexpr std::string_view kBreak = "\uFDD0";
constexpr std::string_view kLiteral = "\uFDD1";
constexpr std::string_view kEscape = "\uFDD2";
constexpr std::string_view kReserved = "\uFDD0\uFDD1\uFDD2";  // three bytes each, in the order of kEscaped
constexpr std::string_view kEscaped = "\uFDD3\uFDD4\uFDD5";
constexpr std::size_t kWidth = 3;
constexpr char kLead = kBreak[0];  // the first byte of all of them, and of other characters

// The place of the character at text[position] in `list`, or npos.
std::size_t find_in(std::string_view list, std::string_view text, std::size_t position) {
  const std::string_view character = text.substr(position, kWidth);
  if (character.size() < kWidth) return std::string_view::npos;
  for (std::size_t i = 0; i < list.size(); i += kWidth) {
    if (list.substr(i, kWidth) == character) return i;
  }
  return std::string_view::npos;
}

// Bytes of the code point that begins with `lead` in valid UTF-8.
std::size_t code_point_size(char lead) {
  return static_cast<std::size_t>(utf8_expected_length(static_cast<unsigned char>(lead)));
}

std::vector<SpellingSet::Entry> control_entries(const Tokenizer& tokenizer, bool reversed) {
  std::vector<SpellingSet::Entry> entries;
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.kind(id) != TokenKind::kControl) continue;
    std::string text(tokenizer.piece(id));
    if (text.empty() || !is_valid_utf8(text)) continue;  // no text holds it
    if (reversed) std::reverse(text.begin(), text.end());
    entries.push_back({std::move(text), id});
  }
  return entries;
}

}  // namespace

SpellingSet::SpellingSet(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return std::tie(a.text, a.id) < std::tie(b.text, b.id); });
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  for (const Entry& entry : entries_) {
    first_[static_cast<unsigned char>(entry.text[0])] = true;
    max_size_ = std::max(max_size_, entry.text.size());
  }
}

SpellingSet::Range SpellingSet::take(Range range, char byte) const {
  const std::size_t depth = range.depth;
  // An entry that ends at this depth sorts in front of those that go on: -1.
  const auto at = [depth](const Entry& entry) {
    return depth < entry.text.size() ? static_cast<int>(static_cast<unsigned char>(entry.text[depth])) : -1;
  };
  const int wanted = static_cast<unsigned char>(byte);
  const auto begin = entries_.begin() + static_cast<std::ptrdiff_t>(range.begin);
  const auto end = entries_.begin() + static_cast<std::ptrdiff_t>(range.end);
  const auto low = std::partition_point(begin, end, [&](const Entry& entry) { return at(entry) < wanted; });
  const auto high = std::partition_point(low, end, [&](const Entry& entry) { return at(entry) == wanted; });
  return {static_cast<std::size_t>(low - entries_.begin()), static_cast<std::size_t>(high - entries_.begin()),
          depth + 1};
}

const SpellingSet::Entry* SpellingSet::exact(Range range) const {
  if (range.empty() || entries_[range.begin].text.size() != range.depth) return nullptr;
  return &entries_[range.begin];
}

ControlMarks::ControlMarks(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), forward_(control_entries(tokenizer, false)), backward_(control_entries(tokenizer, true)) {}

// Whether some spelling ends with the first k bytes of `text` and has more in front of them.
bool ControlMarks::begins_with_suffix(std::string_view text) const {
  for (std::size_t k = 1; k <= text.size() && k < backward_.max_size(); ++k) {
    SpellingSet::Range range = backward_.all();
    for (std::size_t i = k; i > 0 && !range.empty(); --i) range = backward_.take(range, text[i - 1]);
    if (backward_.has_longer(range)) return true;
  }
  return false;
}

std::string ControlMarks::mark(std::string_view text) const {
  std::string out;
  out.reserve(text.size() + kWidth);
  if (begins_with_suffix(text)) out += kBreak;
  for (std::size_t i = 0; i < text.size();) {
    const char lead = text[i];
    if (lead == kLead) {
      if (const std::size_t reserved = find_in(kReserved, text, i); reserved != std::string_view::npos) {
        out.append(kEscape).append(kEscaped.substr(reserved, kWidth));
        i += kWidth;
        continue;
      }
    }
    const std::size_t size = code_point_size(lead);
    out.append(text.substr(i, size));
    if (forward_.has_first(lead)) {
      // How far does the text follow spellings from here: through a whole one, or up to its own end inside one?
      bool literal = false;
      bool broken = false;
      SpellingSet::Range range = forward_.all();
      for (std::size_t j = i; !range.empty() && !broken;) {
        if (j == text.size()) {
          broken = forward_.has_longer(range);
          break;
        }
        range = forward_.take(range, text[j++]);
        if (forward_.exact(range) == nullptr) continue;
        (j - i > size ? broken : literal) = true;
      }
      if (literal) out += kLiteral;
      if (broken) out += kBreak;
    }
    i += size;
  }
  return out;
}

std::string ControlMarks::unmark(std::string_view marked) {
  std::string out;
  out.reserve(marked.size());
  for (std::size_t i = 0; i < marked.size();) {
    const std::size_t next = std::min(marked.find(kLead, i), marked.size());
    out.append(marked.substr(i, next - i));
    i = next;
    if (i == marked.size()) break;
    const std::size_t reserved = find_in(kReserved, marked, i);
    if (reserved == std::string_view::npos) {
      out += marked[i++];
      continue;
    }
    i += kWidth;
    if (reserved != kReserved.find(kEscape)) continue;  // a mark
    const std::size_t escaped = find_in(kEscaped, marked, i);
    if (escaped == std::string_view::npos) continue;  // the template cut the pair apart
    out.append(kReserved.substr(escaped, kWidth));
    i += kWidth;
  }
  return out;
}

// The longest control token of the template's own at `position`, or null.
const SpellingSet::Entry* ControlMarks::match(std::string_view marked, std::size_t position) const {
  const SpellingSet::Entry* best = nullptr;
  const std::size_t size = code_point_size(marked[position]);
  SpellingSet::Range range = forward_.all();
  for (std::size_t i = position; i < marked.size() && !range.empty(); ++i) {
    range = forward_.take(range, marked[i]);
    const SpellingSet::Entry* entry = forward_.exact(range);
    if (entry == nullptr) continue;
    const bool literal = entry->text.size() == size && marked.substr(i + 1).starts_with(kLiteral);
    if (!literal) best = entry;
  }
  return best;
}

void ControlMarks::encode(std::string_view marked, std::vector<TokenId>& out) const {
  std::size_t start = 0;  // of the plain text not yet encoded
  const auto flush = [&](std::size_t end) {
    if (start < end) tokenizer_.encode(unmark(marked.substr(start, end - start)), false, out);
  };
  for (std::size_t i = 0; i < marked.size();) {
    const SpellingSet::Entry* entry = forward_.has_first(marked[i]) ? match(marked, i) : nullptr;
    if (entry == nullptr) {
      ++i;
      continue;
    }
    flush(i);
    out.push_back(entry->id);
    i += entry->text.size();
    start = i;
  }
  flush(marked.size());
}

}  // namespace folio
