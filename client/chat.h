// folio-client chat: a conversation on the terminal, with its history.
#pragma once
#include <optional>
#include <string>

#include "client/common.h"

namespace folio::client {

struct ChatOptions {
  Connection connection;
  std::string system;                  // empty: none
  std::optional<std::string> message;  // one turn with this message; none: a conversation from the standard input
  bool stats = false;
  bool json = false;  // each answer as one JSON object a line
  RequestFlags flags;
};

// Without a message: reads lines until the end of the input or "/exit"; those that begin with "/" are commands, and
// "//" begins a message with one. Ctrl-C stops the answer, not the program. An exit code: the last answer's.
int run_chat(const ChatOptions& options, Interrupts& interrupts);

}  // namespace folio::client
