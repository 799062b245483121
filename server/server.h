// The life of folio-server: bind, load, serve, drain.
//
//   read the TLS files and the API keys                           a wrong one ends here
//   bind both listeners (health NOT_SERVING, calls UNAVAILABLE)   a taken port ends here, before anything is loaded
//   load the model on a thread of its own
//   serve (health SERVING) until a stop is requested
//   drain: health NOT_SERVING, new requests UNAVAILABLE, running ones have --drain-timeout, then they end UNAVAILABLE
#pragma once
#include "server/options.h"
#include "server/stop_signal.h"

namespace folio {

// Blocks until the server has stopped. Throws std::runtime_error (a port, a file) with a message for the operator.
// A stop while the model is loading leaves the process from here (exit code 0): loading cannot be interrupted.
void run_server(const ServerOptions& options, StopSignal& stop);

}  // namespace folio
