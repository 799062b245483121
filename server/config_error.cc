#include "server/config_error.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "engine/text/detokenizer.h"

namespace folio {
namespace {

// As one line of a terminal.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, '?');
  return text;
}

}  // namespace

std::string place(const std::string& path, std::size_t line) {
  return line == 0 ? path : path + ":" + std::to_string(line);
}

ConfigError::ConfigError(const std::string& path, std::size_t line, const std::string& message)
    : std::runtime_error(printable(sanitize_utf8(place(path, line) + ": " + message))) {}

std::string read_operator_file(const std::string& path, const std::string& flag, std::size_t max_bytes) {
  const auto fail = [&](const std::string& what) { throw ConfigError(path, 0, flag + ": " + what); };
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(path, failure);
  if (failure) fail("cannot be read: " + failure.message());
  if (!std::filesystem::is_regular_file(status)) fail("is not a file");
  std::ifstream file(path, std::ios::binary);
  std::string text(max_bytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) fail("cannot be read: " + std::generic_category().message(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > max_bytes) fail("is larger than " + std::to_string(max_bytes) + " bytes");
  return text;
}

}  // namespace folio
