#include "server/caller.h"

#include "server/validation.h"

namespace folio {

std::optional<Error> check_caller(const Caller& caller, std::string_view tenant, std::int32_t priority) {
  if (caller.tenant && !tenant.empty() && tenant != *caller.tenant) {
    return Error{ErrorCode::kPermissionDenied,
                 "tenant: " + quoted(tenant) + " is not the API key's, which is " + quoted(*caller.tenant)};
  }
  if (caller.highest_priority && priority > *caller.highest_priority) {
    return Error{ErrorCode::kPermissionDenied, "priority: " + std::to_string(priority) + " is above the API key's " +
                                                   std::to_string(*caller.highest_priority)};
  }
  return std::nullopt;
}

std::optional<Error> check_admin(const Caller& caller) {
  if (caller.admin) return std::nullopt;
  return Error{ErrorCode::kPermissionDenied, "authorization: the API key is not an admin's"};
}

std::string tenant_of(const Caller& caller, std::string_view requested) {
  return caller.tenant ? *caller.tenant : std::string(requested);
}

std::string cache_domain(const Caller& caller, std::string_view salt) {
  if (caller.share_prefix || !caller.tenant) return "s" + std::string(salt);
  return "t" + std::to_string(caller.tenant->size()) + ":" + *caller.tenant + std::string(salt);
}

}  // namespace folio
