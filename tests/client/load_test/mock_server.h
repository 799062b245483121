// A server over gRPC with known truth: each stream is what the test's function writes.
#pragma once
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "folio/v1/generation.grpc.pb.h"

namespace folio::testing {

using Writer = grpc::ServerWriter<v1::GenerateChunk>;

class MockServer final : public v1::Generation::Service {
 public:
  // On a thread of gRPC's for each call; `number` counts calls from 0.
  using Answer = std::function<grpc::Status(int number, const v1::GenerateRequest&, grpc::ServerContext&, Writer&)>;

  explicit MockServer(Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~MockServer() override { server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1)); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  int num_calls() const { return number_.load(); }

  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    v1::ListModelsResponse::Model& model = *response->add_models();
    model.set_name("mock");
    model.set_vocab_size(1000);
    return grpc::Status::OK;
  }
  grpc::Status GenerateStream(grpc::ServerContext* context, const v1::GenerateRequest* request,
                              Writer* writer) override {
    return answer_(number_.fetch_add(1), *request, *context, *writer);
  }

 private:
  const Answer answer_;
  std::atomic<int> number_{0};
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

inline v1::GenerateChunk tokens(int count, int index = 0) {
  v1::GenerateChunk chunk;
  v1::Output& output = *chunk.add_outputs();
  output.set_index(index);
  for (int i = 0; i < count; ++i) output.add_tokens(1);
  return chunk;
}

inline v1::GenerateChunk end(std::int64_t output_tokens, v1::FinishReason reason = v1::FINISH_REASON_LENGTH) {
  v1::GenerateChunk chunk;
  chunk.add_outputs()->set_finish_reason(reason);
  chunk.mutable_usage()->set_output_tokens(output_tokens);
  chunk.mutable_usage()->set_prompt_tokens(3);
  return chunk;
}

// `count` tokens in one message, and a normal end.
inline grpc::Status answer_at_once(Writer& writer, int count) {
  writer.Write(tokens(count));
  writer.Write(end(count));
  return grpc::Status::OK;
}

}  // namespace folio::testing
