// The one place where a refusal becomes a gRPC status, and messages become bytes and back.
#pragma once
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include <optional>
#include <string>

#include "base/error.h"

namespace folio {

// Texts are valid UTF-8 and at most 1024 bytes: they travel in a header.
grpc::Status to_status(const Error& error);
// The same for a call: one that may be tried again also gets the trailing grpc-retry-pushback-ms. Before Finish.
grpc::Status to_status(const Error& error, grpc::ServerContextBase& context);

// Services take raw bytes, so that bytes that do not parse are INVALID_ARGUMENT naming the message (the library's own
// answer would be UNIMPLEMENTED without a word), and so that big messages are parsed off the library's threads.
template <class Message>
Result<Message> parse_message(const grpc::ByteBuffer& bytes) {
  grpc::ByteBuffer copy(bytes);  // shares the slices
  Message message;
  if (grpc::SerializationTraits<Message>::Deserialize(&copy, &message).ok()) return message;
  return Error{ErrorCode::kInvalidArgument, "request: the bytes do not parse as " + Message::descriptor()->full_name() +
                                                " (every string must be valid UTF-8)"};
}

template <class Message>
grpc::ByteBuffer to_bytes(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer);
  return bytes;
}

}  // namespace folio
