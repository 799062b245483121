#include "engine/text/detokenizer.h"

#include <algorithm>
#include <utility>

#include "engine/text/utf8.h"

namespace folio {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

void Utf8Stream::begin_after(std::string_view before) {
  // A code point that is not finished began in the last three bytes.
  std::string told;
  push(before.substr(before.size() - std::min<std::size_t>(before.size(), 3)), told);
  held_was_told_ = num_held_ > 0;
}

// For what is held, a maximal subpart.
void Utf8Stream::give_replacement(std::string& out) {
  if (!std::exchange(held_was_told_, false)) out.append(kReplacement);
  num_held_ = 0;
}

void Utf8Stream::push(std::string_view bytes, std::string& out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (num_held_ > 0) {
      const auto lead = static_cast<unsigned char>(held_[0]);
      if (utf8_continues(lead, num_held_, byte)) {
        held_[num_held_++] = c;
        if (num_held_ == utf8_expected_length(lead)) {
          const std::string_view whole(held_, static_cast<std::size_t>(num_held_));
          if (whole == kReplacement) {
            give_replacement(out);
          } else {
            out.append(whole);
          }
          held_was_told_ = false;
          num_held_ = 0;
        }
        continue;
      }
      give_replacement(out);  // this byte begins something new
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
  if (num_held_ > 0) give_replacement(out);
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
