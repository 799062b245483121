// The wire of folio.v1.Generation: streams over several connections, read by a thread or a few on completion queues.
#pragma once
#include <memory>

#include "client/common.h"
#include "client/load_test/transport.h"

namespace folio::client {

// `connections` are used in turn; `threads`, of which each has its share of the connections, read them: one drives
// thousands of streams, and a second pays only when the first one has a core of its own. Both at least 1. Waits a few
// seconds for the connections, so that the first requests do not pay for them; a server that is not there is found by
// the first call. Throws std::runtime_error naming a TLS file that cannot be read. REQUIRES of its destruction that all
// calls have ended.
std::unique_ptr<Transport> make_grpc_transport(const Connection& connection, int connections, int threads);

}  // namespace folio::client
