// folio.v1.Generation over gRPC's callback API: bytes to GenerationCall and back. Reactors never tokenise, render or
// wait: the front worker parses and tokenises, the dispatcher thread renders and writes. Every call passes the door.
#pragma once
#include <grpcpp/grpcpp.h>

#include <atomic>

#include "folio/v1/generation.grpc.pb.h"
#include "server/generation.h"
#include "server/grpc_door.h"

namespace folio {

namespace internal {
// Every method raw, for grpc_status.h's reason.
using RawGenerationService = v1::Generation::WithRawCallbackMethod_Generate<
    v1::Generation::WithRawCallbackMethod_GenerateStream<v1::Generation::WithRawCallbackMethod_Chat<
        v1::Generation::WithRawCallbackMethod_ChatStream<v1::Generation::WithRawCallbackMethod_Tokenize<
            v1::Generation::WithRawCallbackMethod_Detokenize<v1::Generation::WithRawCallbackMethod_ApplyChatTemplate<
                v1::Generation::WithRawCallbackMethod_ListModels<v1::Generation::Service>>>>>>>>;
}  // namespace internal

class GenerationService final : public internal::RawGenerationService {
 public:
  explicit GenerationService(const GrpcDoor& door) : door_(door) {}

  // From now on calls are served; before, those of known callers are answered UNAVAILABLE. `generation` outlives every
  // call.
  void serve(Generation& generation) { generation_.store(&generation); }

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* GenerateStream(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Chat(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* ChatStream(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ApplyChatTemplate(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                              grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;

 private:
  const GrpcDoor door_;
  std::atomic<Generation*> generation_{nullptr};
};

}  // namespace folio
