// JSON from elsewhere, read with bounds.
#pragma once
#include <nlohmann/json.hpp>
#include <string_view>

namespace folio::client {

// Discarded: it is no JSON, has a NUL (where the library would stop without a word), or is nested deeper than 64 levels
// (which the library writes by calling itself).
nlohmann::json parse_json(std::string_view text);

}  // namespace folio::client
