// One code point at a time: the well-formedness table of Unicode 15, table 3-7. Inline, since every byte of text passes
// through it.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace folio {

// How many bytes a code point with this first byte has; 0 if no code point begins so.
inline int utf8_expected_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// May `next` be byte number `index` (1 to 3) of a code point that begins with `lead`? The second byte has narrower
// bounds after E0 and F0 (no overlong forms), ED (no surrogates) and F4 (nothing past U+10FFFF).
inline bool utf8_continues(unsigned char lead, int index, unsigned char next) {
  if (index == 1) {
    if (lead == 0xE0) return next >= 0xA0 && next <= 0xBF;
    if (lead == 0xED) return next >= 0x80 && next <= 0x9F;
    if (lead == 0xF0) return next >= 0x90 && next <= 0xBF;
    if (lead == 0xF4) return next >= 0x80 && next <= 0x8F;
  }
  return next >= 0x80 && next <= 0xBF;
}

// The length in bytes of the well-formed code point at `text[position]`, 0 if there is none.
inline std::size_t utf8_length_at(std::string_view text, std::size_t position) {
  const auto lead = static_cast<unsigned char>(text[position]);
  const int length = utf8_expected_length(lead);
  if (length <= 1) return static_cast<std::size_t>(length);
  if (text.size() - position < static_cast<std::size_t>(length)) return 0;
  for (int i = 1; i < length; ++i) {
    if (!utf8_continues(lead, i, static_cast<unsigned char>(text[position + static_cast<std::size_t>(i)]))) return 0;
  }
  return static_cast<std::size_t>(length);
}

}  // namespace folio
