#include "server/http/json_writer.h"

#include <charconv>

#include "engine/text/detokenizer.h"

namespace folio {
namespace {

void append_escaped(std::string& out, char c) {
  constexpr char kHex[] = "0123456789abcdef";
  switch (c) {
    case '"':
    case '\\':
      out += '\\';
      out += c;
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHex[static_cast<unsigned char>(c) >> 4U];
      out += kHex[static_cast<unsigned char>(c) & 15U];
  }
}

bool is_plain(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  std::string valid;
  if (!is_valid_utf8(text)) {
    valid = sanitize_utf8(text);
    text = valid;
  }
  out += '"';
  while (!text.empty()) {
    std::size_t plain = 0;
    while (plain < text.size() && is_plain(text[plain])) ++plain;
    out += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    append_escaped(out, text.front());
    text.remove_prefix(1);
  }
  out += '"';
}

void append_json_number(std::string& out, float value) {
  char text[32];
  const auto [end, failure] = std::to_chars(text, text + sizeof text, value);
  out.append(text, end);
}

}  // namespace folio
