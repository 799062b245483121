// folio.v1.Control over gRPC: what the operator asks. Everything is answered from counters, on gRPC's thread, at once.
#pragma once
#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"
#include "folio/v1/control.grpc.pb.h"
#include "server/generation.h"

namespace folio {

namespace internal {
using RawControlService = v1::Control::WithRawCallbackMethod_GetServerInfo<v1::Control::WithRawCallbackMethod_GetLoad<
    v1::Control::WithRawCallbackMethod_WatchLoad<v1::Control::WithRawCallbackMethod_Abort<
        v1::Control::WithRawCallbackMethod_FlushPrefixCache<v1::Control::WithRawCallbackMethod_Unpin<
            v1::Control::WithRawCallbackMethod_Drain<v1::Control::Service>>>>>>>;
}  // namespace internal

class LoadWatch;  // one WatchLoad stream

class ControlService final : public internal::RawControlService {
 public:
  // `drain` is called for each Drain call, from any thread, and returns at once.
  explicit ControlService(std::function<void()> drain) : drain_(std::move(drain)) {}

  // From now on calls are served; before, all but Drain are answered UNAVAILABLE. Both outlive every call.
  void serve(Engine& engine, Generation& generation, v1::ServerInfo info);
  // Ends the WatchLoad streams and refuses new ones.
  void end_watches();

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                          grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetLoad(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchLoad(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* Abort(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* FlushPrefixCache(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                             grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Unpin(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context, const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  struct Served {
    Engine* engine = nullptr;
    Generation* generation = nullptr;
    v1::ServerInfo info;
  };
  std::shared_ptr<const Served> served() const;

  const std::function<void()> drain_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Served> served_;
  std::vector<std::weak_ptr<LoadWatch>> watches_;
  bool ended_ = false;
};

}  // namespace folio
