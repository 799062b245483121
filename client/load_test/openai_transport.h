// The OpenAI-style HTTP wire of the load test: POST /v1/completions as a stream of events, GET /v1/models, and POST
// /tokenize where the server has it.
#pragma once
#include <memory>

#include "client/common.h"
#include "client/load_test/transport.h"

namespace folio::client {

// All work is done on one thread of its own, which calls the listeners. HTTP/1.1 carries one answer at a time on a
// connection: there are as many connections as streams run at once, kept and used again; model() opens `connections`
// of them ahead. Nothing is sent twice. A deadline is the client's own: the connection is closed when it is over.
//
// Errors of StreamEnd: "HTTP 503" (any status but 200); "error event" and "error body" (an error object in a stream, or
// in place of one); "not a stream" (another answer with status 200); "no end" (without [DONE]); "no finish" (an output
// without a finish_reason); "finish error", "finish abort" ... (one that is not its normal end); "connection" (refused,
// reset, or closed in the middle); "bad answer" (not HTTP, not JSON, or too large); "CANCELLED"; "DEADLINE_EXCEEDED".
//
// Throws std::runtime_error: an address that is none or is not found, TLS files that cannot be read.
std::unique_ptr<Transport> make_openai_transport(const Connection& connection, int connections);

}  // namespace folio::client
