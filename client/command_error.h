// What ends a command, with its exit code.
#pragma once
#include <stdexcept>
#include <string>

namespace folio::client {

class CommandError : public std::runtime_error {
 public:
  CommandError(const std::string& words, int exit_code) : std::runtime_error(words), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

}  // namespace folio::client
