// What an API key may be made of.
#pragma once
#include <string>

namespace folio::client {

// Throws UsageError, without the key in its words, for one that no request can carry: over HTTP one with a control
// character in it (the line end of a file), over gRPC also one that is not ASCII.
void check_api_key(const std::string& key, bool ascii_only);

}  // namespace folio::client
