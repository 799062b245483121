// Server-sent events out of bytes that come in any pieces, by the event stream format of the HTML standard: lines end
// in LF, CRLF or CR, several data lines are joined by LF, comments and unknown fields are passed over, a byte-order
// mark at the beginning too, and an event that no empty line ends is none. One more field is known: `error` is
// an event of that name with its value as data. A pure function of the bytes.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace folio::client {

struct SseEvent {
  std::string name;  // of its `event` field; empty: none
  std::string data;
};

class SseReader {
 public:
  static constexpr std::size_t kMaxEventBytes = 4U << 20;

  void append(std::string_view bytes);
  // The next whole event. False: more bytes are wanted, or the event is too large.
  bool next(SseEvent& event);
  // An event, or a line, has more than kMaxEventBytes. Nothing is read from then on.
  bool too_large() const { return too_large_; }

 private:
  bool next_line(std::string_view& line);
  void read_field(std::string_view line);

  std::string inbox_;
  std::size_t line_ = 0;     // where the line begins that is being read
  std::size_t scanned_ = 0;  // no line ends between line_ and here
  bool after_cr_ = false;    // an LF that follows belongs to the end of the last line
  bool at_start_ = true;
  bool has_data_ = false;
  bool too_large_ = false;
  SseEvent event_;  // its fields so far
};

}  // namespace folio::client
