// Output bytes to valid UTF-8, piece by piece: bytes are held until a code point is whole; invalid bytes become U+FFFD,
// one per maximal subpart (Unicode 15, section 3.9, "U+FFFD substitution of maximal subparts"), also at the end.
// For any split of the same bytes into pushes the joined output is the same. One thread at a time.
//
// begin_after(before): the output is then decode(before + what is pushed) minus decode(before), where decode is push +
// finish, and "minus" takes off the code points that both begin with. So a code point that begins in `before` and ends
// in what is pushed comes whole, and what stays unfinished of `before` gives nothing, since decode(before) has its
// U+FFFD already.
#pragma once
#include <string>
#include <string_view>

namespace folio {

class Utf8Stream {
 public:
  void begin_after(std::string_view before);            // before the first push
  void push(std::string_view bytes, std::string& out);  // appends what is ready
  void finish(std::string& out);                        // appends U+FFFD for what is still held, if anything

 private:
  void give_replacement(std::string& out);

  char held_[4] = {};
  int num_held_ = 0;
  bool held_was_told_ = false;  // what is held began in `before`: as U+FFFD it was told there
};

bool is_valid_utf8(std::string_view bytes);
std::string sanitize_utf8(std::string_view bytes);  // push + finish
// The longest prefix of at most max_bytes that does not split a code point.
std::string_view truncate_utf8(std::string_view text, std::size_t max_bytes);

}  // namespace folio
