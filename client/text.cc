#include "client/text.h"

#include <algorithm>
#include <cstdio>

namespace folio::client {
namespace {

unsigned byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

// Bytes of the character that begins here; 0: none does. The ranges are those of Unicode's table 3-7.
std::size_t character_bytes(std::string_view text, std::size_t at) {
  const unsigned first = byte_at(text, at);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() - at < length) return 0;
  const unsigned second = byte_at(text, at + 1);
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (second < low || second > high) return 0;
  for (std::size_t i = at + 2; i < at + length; ++i) {
    if ((byte_at(text, i) & 0xC0U) != 0x80) return 0;
  }
  return length;
}

// Bytes of the colour sequence (ESC [ ... m) that begins here; 0: none does.
std::size_t colour_bytes(std::string_view text, std::size_t at) {
  if (!text.substr(at).starts_with("\x1b[")) return 0;
  const std::size_t end = text.find('m', at);
  return end == std::string_view::npos ? 0 : end + 1 - at;
}

}  // namespace

std::optional<std::size_t> first_bad_byte(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_bytes(text, at);
    if (length == 0) return at;
    at += length;
  }
  return std::nullopt;
}

std::string repaired(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = character_bytes(text, at);
    if (length == 0) {
      out += "\uFFFD";
    } else {
      out += text.substr(at, length);
    }
    at += std::max<std::size_t>(length, 1);
  }
  return out;
}

std::string printable(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const unsigned byte = byte_at(text, at);
    const bool latin_control = byte == 0xC2 && at + 1 < text.size() && byte_at(text, at + 1) < 0xA0;
    if (latin_control) {
      ++at;
    } else if ((byte >= 0x20 && byte != 0x7F) || byte == '\n' || byte == '\t') {
      out += text[at];
    }
  }
  return out;
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    if (const std::size_t colour = colour_bytes(text, at); colour > 0) {
      at += colour;
      continue;
    }
    width += (byte_at(text, at) & 0xC0U) != 0x80 ? 1 : 0;
    ++at;
  }
  return width;
}

std::string cut_to_width(std::string_view text, std::size_t columns) {
  std::string out;
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t colour = colour_bytes(text, at);
    const std::size_t length = colour > 0 ? colour : std::max<std::size_t>(1, character_bytes(text, at));
    if (colour == 0) ++width;
    if (colour > 0 || width <= columns) out += text.substr(at, length);
    at += length;
  }
  return out;
}

std::string shown_words(std::string_view text, std::size_t max_bytes) {
  std::string out;
  for (const char c : printable(repaired(text))) {
    if (c != ' ' && c != '\n' && c != '\t') {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  if (out.size() <= max_bytes) return out;
  std::size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(out[end]) & 0xC0U) == 0x80) --end;
  out.resize(end);
  return out;
}

std::string count_text(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t sign = count < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > sign + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

}  // namespace folio::client
