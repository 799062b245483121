#include "engine/gguf/printable.h"

namespace folio {

std::string printable(std::string_view bytes, std::size_t max_bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes.substr(0, max_bytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      out += c;
    } else {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  if (bytes.size() > max_bytes) out += "...";
  return out;
}

}  // namespace folio
