#include "server/grpc_service.h"

#include <utility>

#include "server/grpc_calls.h"

namespace folio {
namespace {

using grpc::ByteBuffer;
using grpc::CallbackServerContext;
using internal::make_reactor;
using internal::refuse;
using internal::RefusedStream;

const Error kLoading{ErrorCode::kUnavailable, "the model is loading"};

// Who may call, before anything is said of the model.
Result<Caller> enter(const GrpcDoor& door, const Generation* generation, const CallbackServerContext& context) {
  auto caller = door.caller_of(context);
  if (caller && generation == nullptr) return kLoading;
  return caller;
}

template <class Request>
grpc::ServerUnaryReactor* start_unary(const GrpcDoor& door, Generation* generation, CallbackServerContext& context,
                                      const ByteBuffer& request, ByteBuffer& response) {
  auto caller = enter(door, generation, context);
  if (!caller) {
    if (generation != nullptr) generation->count_refusal(caller.error().code);
    return refuse(context, caller.error());
  }
  const auto call = make_reactor<internal::UnaryCall<Request>>(door.watch, *generation, std::move(*caller), context,
                                                               request, response);
  generation->start(call, request.Length());
  return call.get();
}

template <class Request>
grpc::ServerWriteReactor<ByteBuffer>* start_stream(const GrpcDoor& door, Generation* generation,
                                                   CallbackServerContext& context, const ByteBuffer& request) {
  auto caller = enter(door, generation, context);
  if (!caller) {
    if (generation != nullptr) generation->count_refusal(caller.error().code);
    return new RefusedStream(caller.error());
  }
  const auto call =
      make_reactor<internal::StreamCall<Request>>(door.watch, *generation, std::move(*caller), context, request);
  generation->start(call, request.Length());
  return call.get();
}

template <class Request, class Response>
grpc::ServerUnaryReactor* start_worker(const GrpcDoor& door, Generation* generation,
                                       Result<Response> (Generation::*method)(const Request&) const,
                                       CallbackServerContext& context, const ByteBuffer& request,
                                       ByteBuffer& response) {
  const auto caller = enter(door, generation, context);
  if (!caller) return refuse(context, caller.error());
  const auto call = make_reactor<internal::WorkerCall<Request, Response>>(door.watch, *generation, method, context,
                                                                          request, response);
  generation->run(call, request.Length());
  return call.get();
}

}  // namespace

grpc::ServerUnaryReactor* GenerationService::Generate(CallbackServerContext* context, const ByteBuffer* request,
                                                      ByteBuffer* response) {
  return start_unary<v1::GenerateRequest>(door_, generation_.load(), *context, *request, *response);
}

grpc::ServerWriteReactor<ByteBuffer>* GenerationService::GenerateStream(CallbackServerContext* context,
                                                                        const ByteBuffer* request) {
  return start_stream<v1::GenerateRequest>(door_, generation_.load(), *context, *request);
}

grpc::ServerUnaryReactor* GenerationService::Chat(CallbackServerContext* context, const ByteBuffer* request,
                                                  ByteBuffer* response) {
  return start_unary<v1::ChatRequest>(door_, generation_.load(), *context, *request, *response);
}

grpc::ServerWriteReactor<ByteBuffer>* GenerationService::ChatStream(CallbackServerContext* context,
                                                                    const ByteBuffer* request) {
  return start_stream<v1::ChatRequest>(door_, generation_.load(), *context, *request);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(CallbackServerContext* context, const ByteBuffer* request,
                                                      ByteBuffer* response) {
  return start_worker(door_, generation_.load(), &Generation::tokenize, *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::Detokenize(CallbackServerContext* context, const ByteBuffer* request,
                                                        ByteBuffer* response) {
  return start_worker(door_, generation_.load(), &Generation::detokenize, *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::ApplyChatTemplate(CallbackServerContext* context,
                                                               const ByteBuffer* request, ByteBuffer* response) {
  return start_worker(door_, generation_.load(), &Generation::apply_chat_template, *context, *request, *response);
}

grpc::ServerUnaryReactor* GenerationService::ListModels(CallbackServerContext* context, const ByteBuffer* request,
                                                        ByteBuffer* response) {
  Generation* generation = generation_.load();
  const auto caller = enter(door_, generation, *context);
  if (!caller) return refuse(*context, caller.error());
  const auto parsed = parse_message<v1::ListModelsRequest>(*request);
  if (!parsed) return refuse(*context, parsed.error());
  *response = to_bytes(generation->list_models());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace folio
