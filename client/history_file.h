// What was typed in earlier conversations: a file of lines, for its owner's eyes only (mode 0600).
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace folio::client {

class HistoryFile {
 public:
  static constexpr std::size_t kMaxLines = 1000;

  // `path` empty: nothing is kept.
  explicit HistoryFile(std::string path) : path_(std::move(path)) {}

  // $XDG_STATE_HOME/folio/chat_history, by default ~/.local/state/...; empty where there is no home.
  static std::string default_path();

  // The last kMaxLines that are UTF-8, the oldest first. A file that grew to twice as many is cut to them.
  std::vector<std::string> load() const;
  // Appends it at once, so that no end of the program loses it; makes the file and the folders. False: it could not.
  bool add(std::string_view line) const;

 private:
  const std::string path_;
};

}  // namespace folio::client
