// What is wrong with a file that the operator wrote, and where.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>

namespace folio {

// what(): "FILE:LINE: KEY: what is wrong", one line of valid UTF-8. Line 0: of the whole file, no line is named.
class ConfigError : public std::runtime_error {
 public:
  ConfigError(const std::string& path, std::size_t line, const std::string& message);
};

// "FILE:LINE", or "FILE" for line 0.
std::string place(const std::string& path, std::size_t line);

// A regular file, whole; `flag` is the one that named it. Throws ConfigError: not there, not a file, over max_bytes.
std::string read_operator_file(const std::string& path, const std::string& flag, std::size_t max_bytes);

}  // namespace folio
