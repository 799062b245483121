// What ends a command, with its exit code.
#pragma once
#include <stdexcept>
#include <string>

namespace folio::client {

// Exit codes: docs/client.md has the table.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;     // a wrong command line, or a prompt that is not UTF-8
inline constexpr int kExitNoServer = 4;  // nobody there, or not ready
inline constexpr int kExitRefused = 5;   // the server said no
inline constexpr int kExitInterrupted = 130;

class CommandError : public std::runtime_error {
 public:
  CommandError(const std::string& words, int exit_code) : std::runtime_error(words), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// The command line asks for what cannot be; the words name the flag.
struct UsageError : CommandError {
  explicit UsageError(const std::string& words) : CommandError(words, kExitUsage) {}
};

}  // namespace folio::client
