// A refusal as a value: what was wrong, in words for the caller. The fronts map the code to gRPC and HTTP in one place.
// Exceptions are for start-up only (a bad file or flag); a broken invariant is FOLIO_CHECK.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace folio {

enum class ErrorCode {
  kInvalidArgument,     // the message names the field
  kUnauthenticated,     // no key, or one that is not known
  kPermissionDenied,    // the key may not do that; the message names the field
  kResourceExhausted,   // queue full
  kNotFound,            // no such model
  kFailedPrecondition,  // no chat template
  kUnavailable,         // loading or draining
  kDeadlineExceeded,
  kCancelled,
  kInternal,  // the last
};
inline constexpr std::size_t kNumErrorCodes = static_cast<std::size_t>(ErrorCode::kInternal) + 1;

// "invalid_argument": gRPC's name of the code in small letters.
constexpr std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid_argument";
    case ErrorCode::kUnauthenticated:
      return "unauthenticated";
    case ErrorCode::kPermissionDenied:
      return "permission_denied";
    case ErrorCode::kResourceExhausted:
      return "resource_exhausted";
    case ErrorCode::kNotFound:
      return "not_found";
    case ErrorCode::kFailedPrecondition:
      return "failed_precondition";
    case ErrorCode::kUnavailable:
      return "unavailable";
    case ErrorCode::kDeadlineExceeded:
      return "deadline_exceeded";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::int32_t retry_after_ms = 0;  // with kResourceExhausted: when to try again; 0: no hint
  bool over_context = false;        // with kInvalidArgument: a shorter prompt would do
};

// A value or the reason why there is none.
template <class T>
class Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return std::get<0>(state_); }
  const T& value() const { return std::get<0>(state_); }
  T& operator*() { return value(); }
  const T& operator*() const { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace folio
