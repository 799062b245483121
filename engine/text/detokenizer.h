// Output bytes to valid UTF-8, piece by piece: bytes are held until a code point is whole; invalid bytes become U+FFFD,
// one per maximal subpart (Unicode 15, section 3.9, "U+FFFD substitution of maximal subparts"), also at the end.
// For any split of the same bytes into pushes the joined output is the same. One thread at a time.
#pragma once
#include <string>
#include <string_view>

namespace folio {

class Utf8Stream {
 public:
  void push(std::string_view bytes, std::string& out);  // appends what is ready
  void finish(std::string& out);                        // appends U+FFFD for what is still held, if anything

 private:
  char held_[4] = {};
  int num_held_ = 0;
};

bool is_valid_utf8(std::string_view bytes);
std::string sanitize_utf8(std::string_view bytes);  // push + finish
// The longest prefix of at most max_bytes that does not split a code point.
std::string_view truncate_utf8(std::string_view text, std::size_t max_bytes);

}  // namespace folio
