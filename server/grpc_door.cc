#include "server/grpc_door.h"

#include <string_view>
#include <vector>

namespace folio {

Result<Caller> GrpcDoor::caller_of(const grpc::CallbackServerContext& context) const {
  if (!keys.required()) return Caller{};
  std::vector<std::string_view> headers;
  const auto [first, last] = context.client_metadata().equal_range("authorization");
  for (auto at = first; at != last; ++at) headers.emplace_back(at->second.data(), at->second.size());
  return keys.authorize(headers);
}

std::optional<Error> GrpcDoor::refuse_unless_admin(const grpc::CallbackServerContext& context) const {
  const auto caller = caller_of(context);
  if (!caller) return caller.error();
  return check_admin(*caller);
}

}  // namespace folio
