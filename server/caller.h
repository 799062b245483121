// Who calls, as the door of a front found it: what they may do and whose share they take. Without API keys everybody is
// the same nobody, who may do everything.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace folio {

struct Caller {
  // Of the key; a request that names another tenant is refused. Not set: no keys are in use, and the request says whose
  // it is.
  std::optional<std::string> tenant;
  // A request above it is refused. Not set: any.
  std::optional<std::int32_t> highest_priority;
  // May use the Control service.
  bool admin = true;
  // Cached prefixes are shared with everybody of the same salt, not with the tenant's own requests alone: how long an
  // answer takes would tell what others asked.
  bool share_prefix = true;
};

}  // namespace folio
