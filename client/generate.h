// folio-client generate "PROMPT": one prompt, streamed to the terminal.
#pragma once
#include <optional>
#include <string>

#include "client/common.h"

namespace folio::client {

struct GenerateOptions {
  Connection connection;
  std::optional<std::string> prompt;  // "-", or neither this nor a file: the standard input
  std::string file;                   // empty: none; a path whose content is the prompt
  bool parse_special = false;
  bool stats = false;
  bool json = false;
  RequestFlags flags;
};

// An exit code. Ctrl-C ends the request.
int run_generate(const GenerateOptions& options, Interrupts& interrupts);

}  // namespace folio::client
