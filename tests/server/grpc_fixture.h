// The gRPC front in process: real listeners on free ports, a real engine over a scripted model.
#pragma once
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "folio/v1/control.grpc.pb.h"
#include "folio/v1/generation.grpc.pb.h"
#include "server/control_service.h"
#include "server/grpc_listener.h"
#include "server/grpc_service.h"
#include "tests/server/front_fixture.h"

namespace folio::test {

class GrpcTest : public FrontTest {
 protected:
  explicit GrpcTest(const std::string& key_file = "") : keys_(key_file) {}
  static void SetUpTestSuite() { init_grpc(); }

  // How the listener and the channel are made: a test with TLS has its own.
  virtual ListenerOptions listener_options() { return {}; }
  virtual std::shared_ptr<grpc::ChannelCredentials> channel_credentials() { return grpc::InsecureChannelCredentials(); }

  void SetUp() override {
    listener_ = std::make_unique<GrpcListener>(
        "127.0.0.1:0",
        std::vector<NamedService>{{&generation_service_, v1::Generation::service_full_name()},
                                  {&control_service_, v1::Control::service_full_name()}},
        listener_options());
    address_ = "127.0.0.1:" + std::to_string(listener_->port());
    channel_ = grpc::CreateChannel(address_, channel_credentials());
    stub_ = v1::Generation::NewStub(channel_);
    control_ = v1::Control::NewStub(channel_);
  }
  void serve() {
    generation_service_.serve(generation_);
    control_service_.serve(engine_, generation_, v1::ServerInfo());
    listener_->set_serving(true);
  }
  void TearDown() override {
    FrontTest::TearDown();
    control_service_.end_watches();
    if (listener_) listener_->shutdown(std::chrono::steady_clock::now() + std::chrono::seconds(1));
    // The last references may still be on their way out of the worker and the dispatcher.
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (generation_.num_live_calls() > 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(generation_.num_live_calls(), 0);
  }

  grpc::Status generate(const v1::GenerateRequest& request, v1::GenerateResponse* response = nullptr) {
    grpc::ClientContext context;
    v1::GenerateResponse ignored;
    return stub_->Generate(&context, request, response != nullptr ? response : &ignored);
  }
  // A call by name with bytes of our own.
  grpc::Status call_raw(const std::string& method, const std::string& bytes, std::string* answer = nullptr,
                        const std::vector<std::string>& authorization = {}) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    for (const std::string& value : authorization) context.AddMetadata("authorization", value);
    const grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::CompletionQueue queue;
    const auto reader = stub.PrepareUnaryCall(&context, method, request, &queue);
    reader->StartCall();
    grpc::Status status;
    reader->Finish(&response, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    std::vector<grpc::Slice> slices;
    if (answer != nullptr && response.Dump(&slices).ok()) {
      for (const grpc::Slice& part : slices) answer->append(reinterpret_cast<const char*>(part.begin()), part.size());
    }
    return status;
  }
  // grpc.health.v1: status 1 is SERVING, 2 NOT_SERVING.
  int health(const std::string& service) {
    std::string request;
    if (!service.empty()) request = std::string("\x0A") + static_cast<char>(service.size()) + service;
    std::string answer;
    const grpc::Status status = call_raw("/grpc.health.v1.Health/Check", request, &answer);
    return status.ok() && answer.size() == 2 ? answer[1] : -static_cast<int>(status.error_code());
  }

  static constexpr auto kWriteTimeout = std::chrono::milliseconds(500);
  bool drained_ = false;
  ApiKeys keys_;
  WriteWatch watch_{kWriteTimeout};
  GenerationService generation_service_{GrpcDoor{keys_, watch_}};
  ControlService control_service_{GrpcDoor{keys_, watch_}, [this] { drained_ = true; }};
  std::unique_ptr<GrpcListener> listener_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::Generation::Stub> stub_;
  std::unique_ptr<v1::Control::Stub> control_;
};

}  // namespace folio::test
