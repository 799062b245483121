#include "client/api_key.h"

#include <algorithm>

#include "client/command_error.h"

namespace folio::client {

void check_api_key(const std::string& key, bool ascii_only) {
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
  if (std::any_of(key.begin(), key.end(), is_control)) {
    throw UsageError("--api-key (or FOLIO_API_KEY): has a control character in it, such as the line end of a file");
  }
  if (ascii_only && std::any_of(key.begin(), key.end(), [](char c) { return static_cast<unsigned char>(c) > 0x7F; })) {
    throw UsageError("--api-key (or FOLIO_API_KEY): has a character in it that is not ASCII, which gRPC cannot carry");
  }
}

}  // namespace folio::client
