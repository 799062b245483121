#include "engine/text/detokenizer.h"

#include "engine/text/utf8.h"

namespace folio {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (num_held_ > 0) {
      const auto lead = static_cast<unsigned char>(held_[0]);
      if (utf8_continues(lead, num_held_, byte)) {
        held_[num_held_++] = c;
        if (num_held_ == utf8_expected_length(lead)) {
          out.append(held_, static_cast<std::size_t>(num_held_));
          num_held_ = 0;
        }
        continue;
      }
      // What is held is a maximal subpart; this byte begins something new.
      out.append(kReplacement);
      num_held_ = 0;
    }
    switch (utf8_expected_length(byte)) {
      case 0:
        out.append(kReplacement);
        break;
      case 1:
        out.push_back(c);
        break;
      default:
        held_[0] = c;
        num_held_ = 1;
    }
  }
}

void Utf8Stream::finish(std::string& out) {
  if (num_held_ > 0) out.append(kReplacement);
  num_held_ = 0;
}

bool is_valid_utf8(std::string_view bytes) {
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t length = utf8_length_at(bytes, i);
    if (length == 0) return false;
    i += length;
  }
  return true;
}

std::string sanitize_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  Utf8Stream stream;
  stream.push(bytes, out);
  stream.finish(out);
  return out;
}

std::string_view truncate_utf8(std::string_view text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  // At most three bytes before the cut belong to a code point that the cut would split.
  for (std::size_t back = 1; back <= 3 && back <= max_bytes; ++back) {
    const std::size_t start = max_bytes - back;
    const std::size_t length = utf8_length_at(text, start);
    if (length > back) return text.substr(0, start);
    if (length != 0) break;
  }
  return text.substr(0, max_bytes);
}

}  // namespace folio
