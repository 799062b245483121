// folio.v1.Control over gRPC: what the operator asks. Everything but DumpBlocks is answered from counters, on gRPC's
// thread, at once. Where API keys are in use, it takes an admin's.
#pragma once
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/engine.h"
#include "folio/v1/control.grpc.pb.h"
#include "server/generation.h"
#include "server/grpc_door.h"

namespace folio {

namespace internal {
using RawControlService = v1::Control::WithRawCallbackMethod_GetServerInfo<
    v1::Control::WithRawCallbackMethod_GetLoad<v1::Control::WithRawCallbackMethod_WatchLoad<
        v1::Control::WithRawCallbackMethod_Abort<v1::Control::WithRawCallbackMethod_FlushPrefixCache<
            v1::Control::WithRawCallbackMethod_Unpin<v1::Control::WithRawCallbackMethod_Drain<
                v1::Control::WithRawCallbackMethod_DumpBlocks<v1::Control::Service>>>>>>>>;
}  // namespace internal

class LoadWatch;  // one WatchLoad stream

class ControlService final : public internal::RawControlService {
 public:
  // `drain` is called for each Drain call, from any thread, and returns at once.
  ControlService(const GrpcDoor& door, std::function<void()> drain) : door_(door), drain_(std::move(drain)) {}

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
  grpc::ServerWriteReactor<grpc::ByteBuffer>* DumpBlocks(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;

  static constexpr int kMaxDumps = 8;  // DumpBlocks at once: each holds a copy of every block's state

 private:
  struct Served {
    Engine* engine = nullptr;
    Generation* generation = nullptr;
    v1::ServerInfo info;
  };
  std::shared_ptr<const Served> served() const;
  v1::Load load_of(const Served& served) const;

  const GrpcDoor door_;
  const std::function<void()> drain_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Served> served_;
  std::vector<std::weak_ptr<LoadWatch>> watches_;
  bool ended_ = false;
  std::atomic<int> num_dumps_{0};
};

}  // namespace folio
