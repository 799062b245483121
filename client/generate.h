// folio-client generate "PROMPT": one prompt, streamed to the terminal.
#pragma once
#include <string>

#include "client/common.h"

namespace folio::client {

struct GenerateOptions {
  Connection connection;
  std::string prompt;  // "-": the standard input
  bool parse_special = false;
  bool stats = false;
  bool json = false;
  RequestFlags flags;
};

// An exit code. Ctrl-C ends the request.
int run_generate(const GenerateOptions& options, Interrupts& interrupts);

}  // namespace folio::client
