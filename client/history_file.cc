#include "client/history_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "client/text.h"

namespace folio::client {
namespace {

namespace fs = std::filesystem;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Folders that are made are the owner's alone, as the XDG base directories want it.
bool make_folders(const fs::path& folder) {
  if (folder.empty() || fs::exists(folder)) return true;
  return make_folders(folder.parent_path()) && mkdir(folder.c_str(), 0700) == 0;
}

bool write_lines(const std::string& path, int flags, std::string_view lines) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
  if (fd < 0) return false;
  // Also where an older file was open to others.
  const bool ok = fchmod(fd, 0600) == 0 && write(fd, lines.data(), lines.size()) == static_cast<ssize_t>(lines.size());
  close(fd);
  return ok;
}

}  // namespace

std::string HistoryFile::default_path() {
  std::string state = environment("XDG_STATE_HOME");
  if (!state.starts_with('/')) {
    const std::string home = environment("HOME");
    if (!home.starts_with('/')) return "";
    state = home + "/.local/state";
  }
  return state + "/folio/chat_history";
}

std::vector<std::string> HistoryFile::load() const {
  std::vector<std::string> lines;
  std::ifstream file(path_);
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && !first_bad_byte(line)) lines.push_back(line);
  }
  if (lines.size() <= kMaxLines) return lines;
  const bool too_long = lines.size() >= 2 * kMaxLines;
  lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kMaxLines));
  if (too_long) {
    std::string whole;
    for (const std::string& line : lines) whole += line + "\n";
    // Where it cannot be written, it is as long the next time.
    static_cast<void>(write_lines(path_, O_TRUNC, whole));
  }
  return lines;
}

bool HistoryFile::add(std::string_view line) const {
  if (path_.empty()) return true;
  return make_folders(fs::path(path_).parent_path()) && write_lines(path_, O_APPEND, std::string(line) + "\n");
}

}  // namespace folio::client
