#include "client/plot_text.h"

#include <cstddef>
#include <cstdint>

namespace folio::client {
namespace {

struct Character {
  std::size_t size;      // bytes
  std::uint32_t number;  // U+FFFD for a byte that begins no character, and for what XML forbids
};

constexpr std::uint32_t kReplacement = 0xFFFD;

bool xml_allows(std::uint32_t number) {
  return number >= 0x20 && number != 0xFFFE && number != 0xFFFF;
}

// REQUIRES that text is not empty.
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(text[i])); };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80)
    return {1, lead == '\n' || lead == '\t' || lead == '\r' ? ' ' : xml_allows(lead) ? lead : kReplacement};
  const std::size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  constexpr std::uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xC2 || lead > 0xF4 || text.size() < size) return {1, kReplacement};
  std::uint32_t number = lead & (0x7FU >> size);
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {1, kReplacement};
    number = number << 6U | (byte(i) & 0x3FU);
  }
  if (number < kSmallest[size] || number > 0x10FFFF || (number >= 0xD800 && number < 0xE000)) return {1, kReplacement};
  return {size, xml_allows(number) ? number : kReplacement};
}

// Of the font's size. Digits and small letters of usual fonts are near 0.55, capitals near 0.7.
double character_width(std::uint32_t number) {
  if (number >= 0x1100) return 1;
  return (number >= 'A' && number <= 'Z') || number == 'm' || number == 'w' || number >= 0x80 ? 0.75 : 0.58;
}

}  // namespace

std::string xml_escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Character next = first_character(text);
    switch (next.number) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      case ' ':
        out += ' ';
        break;
      case kReplacement:
        out += "\xEF\xBF\xBD";
        break;
      default:
        out += text.substr(0, next.size);
    }
    text.remove_prefix(next.size);
  }
  return out;
}

double text_width(std::string_view text, double size) {
  double width = 0;
  while (!text.empty()) {
    const Character next = first_character(text);
    width += character_width(next.number) * size;
    text.remove_prefix(next.size);
  }
  return width;
}

std::string cut_to(std::string_view text, double size, double width) {
  if (text_width(text, size) <= width) return std::string(text);
  double used = size;  // the ellipsis
  std::size_t end = 0;
  while (end < text.size()) {
    const Character next = first_character(text.substr(end));
    used += character_width(next.number) * size;
    if (used > width) break;
    end += next.size;
  }
  return std::string(text.substr(0, end)) + "…";
}

}  // namespace folio::client
