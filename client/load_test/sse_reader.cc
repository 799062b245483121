#include "client/load_test/sse_reader.h"

#include <utility>

namespace folio::client {

void SseReader::append(std::string_view bytes) {
  inbox_.erase(0, line_);
  scanned_ -= line_;
  line_ = 0;
  inbox_ += bytes;
}

bool SseReader::next_line(std::string_view& line) {
  if (after_cr_ && line_ < inbox_.size()) {
    after_cr_ = false;
    if (inbox_[line_] == '\n') scanned_ = ++line_;
  }
  const std::size_t end = inbox_.find_first_of("\r\n", scanned_);
  if (end == std::string::npos) {
    scanned_ = inbox_.size();
    too_large_ = inbox_.size() - line_ > kMaxEventBytes;
    return false;
  }
  line = std::string_view(inbox_).substr(line_, end - line_);
  after_cr_ = inbox_[end] == '\r';
  line_ = scanned_ = end + 1;
  if (std::exchange(at_start_, false) && line.starts_with("\xEF\xBB\xBF")) line.remove_prefix(3);
  return true;
}

void SseReader::read_field(std::string_view line) {
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);  // empty: a comment
  std::string_view value = colon == std::string_view::npos ? std::string_view() : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (name == "event") {
    event_.name = value;
  } else if (name == "data") {
    if (std::exchange(has_data_, true)) event_.data += '\n';
    event_.data += value;
  } else if (name == "error") {  // llama-server's, in versions before 2025
    event_.name = name;
    event_.data = value;
    has_data_ = true;
  }
}

bool SseReader::next(SseEvent& event) {
  std::string_view line;
  while (!too_large_ && next_line(line)) {
    if (!line.empty()) {
      read_field(line);
      too_large_ = event_.data.size() > kMaxEventBytes;
      continue;
    }
    SseEvent whole = std::exchange(event_, {});
    if (!std::exchange(has_data_, false)) continue;
    event = std::move(whole);
    return true;
  }
  return false;
}

}  // namespace folio::client
