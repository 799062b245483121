// Names from a file as they may stand in a message.
#pragma once
#include <string>
#include <string_view>

namespace folio {

// Printable ASCII stays, other bytes become \xNN; cut with "..." after `max_bytes` of the input.
std::string printable(std::string_view bytes, std::size_t max_bytes = 80);

}  // namespace folio
