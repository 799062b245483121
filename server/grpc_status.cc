#include "server/grpc_status.h"

#include "engine/text/detokenizer.h"

namespace folio {
namespace {

constexpr std::size_t kMaxStatusBytes = 1024;

grpc::StatusCode to_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case ErrorCode::kUnauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
    case ErrorCode::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case ErrorCode::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case ErrorCode::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case ErrorCode::kFailedPrecondition:
      return grpc::StatusCode::FAILED_PRECONDITION;
    case ErrorCode::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case ErrorCode::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case ErrorCode::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case ErrorCode::kInternal:
      return grpc::StatusCode::INTERNAL;
  }
  return grpc::StatusCode::INTERNAL;
}

}  // namespace

grpc::Status to_status(const Error& error) {
  return {to_code(error.code), std::string(truncate_utf8(sanitize_utf8(error.message), kMaxStatusBytes))};
}

grpc::Status to_status(const Error& error, grpc::ServerContextBase& context) {
  if (error.retry_after_ms > 0) {
    context.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(error.retry_after_ms));
  }
  return to_status(error);
}

}  // namespace folio
