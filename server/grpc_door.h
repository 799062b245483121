// What every call over gRPC passes first: who is it, and is its reader still there.
#pragma once
#include <grpcpp/grpcpp.h>

#include "base/error.h"
#include "server/api_keys.h"
#include "server/caller.h"
#include "server/write_watch.h"

namespace folio {

// Outlives every call, as both of its parts do.
struct GrpcDoor {
  const ApiKeys& keys;
  WriteWatch& watch;

  // From the call's metadata `authorization`.
  Result<Caller> caller_of(const grpc::CallbackServerContext& context) const;
  // The same, and it is an admin.
  std::optional<Error> refuse_unless_admin(const grpc::CallbackServerContext& context) const;
};

}  // namespace folio
