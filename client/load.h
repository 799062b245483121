// folio-client load: what a server does now, as one screen that changes, as lines, or as JSON.
#pragma once
#include <cstdint>

#include "client/common.h"

namespace folio::client {

struct LoadOptions {
  LoadOptions() { connection.address = kDefaultControlAddress; }

  Connection connection;  // to the control listener
  std::uint32_t interval_ms = 1000;
  std::int64_t count = 0;  // ends after so many; 0: goes on until Ctrl-C
  bool json = false;       // each as one JSON object a line
};

// A screen on a terminal; elsewhere a line each. An exit code: kExitOk also for Ctrl-C where there is no count.
int run_load(const LoadOptions& options, Interrupts& interrupts);

}  // namespace folio::client
