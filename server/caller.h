// Who calls, as the door of a front found it: what they may do and whose share they take. Without API keys everybody is
// the same nobody, who may do everything.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

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

// Whether a caller may ask for this: kPermissionDenied naming the field, or nothing. An empty tenant in a request is
// the key's.
std::optional<Error> check_caller(const Caller& caller, std::string_view tenant, std::int32_t priority);
// The operator's calls.
std::optional<Error> check_admin(const Caller& caller);
// Whose request it is.
std::string tenant_of(const Caller& caller, std::string_view requested);

// The engine's salt for a request with this cache.salt. Callers that share have one set of domains, each tenant of
// others a set of its own:
//
//   shared    "s" salt
//   tenant    "t" bytes of the tenant's name, in decimal ":" name salt
//
// The first byte says which, and the length where the name ends: whatever bytes a salt or a name has, two pairs never
// give the same.
std::string cache_domain(const Caller& caller, std::string_view salt);

}  // namespace folio
