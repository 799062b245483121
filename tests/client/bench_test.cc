// The load test against a server with known truth.
#include "client/bench.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

using namespace std::chrono_literals;
using Writer = grpc::ServerWriter<v1::GenerateChunk>;

// One for the program: it blocks the signals before any thread of gRPC exists.
Interrupts& interrupts() {
  static Interrupts instance;
  return instance;
}
const Interrupts& kEarly = interrupts();

class MockServer final : public v1::Generation::Service {
 public:
  using Answer = std::function<grpc::Status(int number, const v1::GenerateRequest&, grpc::ServerContext&, Writer&)>;

  explicit MockServer(Answer answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~MockServer() override { server_->Shutdown(std::chrono::system_clock::now() + 1s); }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

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

v1::GenerateChunk tokens(int count) {
  v1::GenerateChunk chunk;
  v1::Output& output = *chunk.add_outputs();
  for (int i = 0; i < count; ++i) output.add_tokens(1);
  return chunk;
}

v1::GenerateChunk end(std::int64_t output_tokens, v1::FinishReason reason = v1::FINISH_REASON_LENGTH) {
  v1::GenerateChunk chunk;
  chunk.add_outputs()->set_finish_reason(reason);
  chunk.mutable_usage()->set_output_tokens(output_tokens);
  chunk.mutable_usage()->set_prompt_tokens(3);
  return chunk;
}

struct Outcome {
  int exit_code = 0;
  nlohmann::json json;
};

Outcome bench(const MockServer& server, BenchOptions options) {
  const testing::TempFolder folder;
  options.connection.address = server.address();
  options.json_file = folder.path("bench.json");
  ::testing::internal::CaptureStdout();
  Outcome out;
  out.exit_code = run_bench(options, interrupts());
  ::testing::internal::GetCapturedStdout();
  out.json = nlohmann::json::parse(testing::read_file(options.json_file));
  return out;
}

BenchOptions small(int num_requests, int concurrency) {
  BenchOptions options;
  options.num_requests = num_requests;
  options.concurrency = concurrency;
  options.prompt_tokens = 3;
  options.output_tokens = 100;
  return options;
}

// C03: tokens are counted, not chunks, and a chunk's time is shared by its tokens.
TEST(Bench, TokensAreCountedHoweverTheyAreCut) {
  for (const int num_chunks : {1, 4, 10, 100}) {
    const MockServer server([num_chunks](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
      EXPECT_EQ(request.tokens().ids_size(), 3);
      EXPECT_TRUE(request.stopping().ignore_eos());
      for (int i = 0; i < num_chunks; ++i) {
        if (i > 0) std::this_thread::sleep_for(4ms);
        writer.Write(tokens(100 / num_chunks));
        writer.Write(v1::GenerateChunk());  // nothing in it
      }
      writer.Write(end(100));
      return grpc::Status::OK;
    });
    const Outcome out = bench(server, small(2, 1));
    EXPECT_EQ(out.exit_code, kExitOk);
    EXPECT_EQ(out.json["output_tokens"], 200);
    EXPECT_EQ(out.json["itl_ms"]["count"], 198);
    const double mean_itl = out.json["itl_ms"]["mean"];
    const double mean_e2e = out.json["e2e_ms"]["mean"];
    EXPECT_LE(mean_itl * 99, mean_e2e);
    EXPECT_GE(mean_itl * 99, num_chunks - 1);  // of the 4 ms each: a busy machine may read the first ones late
  }
}

// C05: each kind of failure by its name, none of them in the figures.
TEST(Bench, FailuresAreCountedByKind) {
  const MockServer server([](int number, auto&, auto&, Writer& writer) -> grpc::Status {
    switch (number % 6) {
      case 0:
        writer.Write(tokens(5));
        return {grpc::StatusCode::UNAVAILABLE, "in the middle"};
      case 1:
        return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full"};
      case 2:
        writer.Write(tokens(5));
        return grpc::Status::OK;  // no finish reason
      case 3:
        writer.Write(tokens(5));
        writer.Write(end(5, v1::FINISH_REASON_ERROR));
        return grpc::Status::OK;
      case 4:
        writer.Write(end(0));
        return grpc::Status::OK;  // no token
      default:
        writer.Write(tokens(5));
        writer.Write(end(5));
        return grpc::Status::OK;
    }
  });
  const Outcome out = bench(server, small(60, 6));
  EXPECT_EQ(out.exit_code, kExitOk);
  EXPECT_EQ(out.json["num_ok"], 10);
  EXPECT_EQ(out.json["num_empty"], 10);
  EXPECT_EQ(out.json["num_failed"], 40);
  for (const char* kind : {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "no end", "finish ERROR"}) {
    EXPECT_EQ(out.json["errors"][kind]["count"], 10) << kind;
  }
  EXPECT_EQ(out.json["errors"]["UNAVAILABLE"]["first_message"], "in the middle");
  EXPECT_EQ(out.json["ttft_ms"]["count"], 10);
  EXPECT_EQ(out.json["output_tokens"], 50);
}

TEST(Bench, NothingGoodIsAFailure) {
  const MockServer server([](int, auto&, auto&, Writer&) { return grpc::Status(grpc::StatusCode::INTERNAL, "no"); });
  const Outcome out = bench(server, small(5, 2));
  EXPECT_EQ(out.exit_code, kExitFailed);
  EXPECT_EQ(out.json["ttft_ms"].dump(), R"({"count":0})");
}

TEST(Bench, ConcurrencyIsKeptAndASeedSendsTheSameLoad) {
  std::atomic<int> live{0};
  std::atomic<int> most{0};
  std::atomic<std::int64_t> sum{0};
  const MockServer server([&](int, const v1::GenerateRequest& request, auto&, Writer& writer) {
    const int now = live.fetch_add(1) + 1;
    int seen = most.load();
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    for (const int id : request.tokens().ids()) sum.fetch_add(id);
    std::this_thread::sleep_for(5ms);
    writer.Write(tokens(1));
    writer.Write(end(1));
    live.fetch_sub(1);
    return grpc::Status::OK;
  });
  BenchOptions options = small(20, 4);
  options.seed = 9;
  bench(server, options);
  EXPECT_LE(most.load(), 4);
  EXPECT_GE(most.load(), 2);
  const std::int64_t first = sum.exchange(0);
  bench(server, options);
  EXPECT_EQ(sum.load(), first);
}

// C06
TEST(Bench, CtrlCGivesAPartialSummary) {
  std::atomic<int> num_aborted{0};
  const MockServer server([&](int number, auto&, grpc::ServerContext& context, Writer& writer) {
    writer.Write(tokens(1));
    if (number == 3) kill(getpid(), SIGINT);
    while (number >= 3 && !context.IsCancelled()) std::this_thread::sleep_for(1ms);
    if (number >= 3) num_aborted.fetch_add(1);
    writer.Write(end(1));
    return grpc::Status::OK;
  });
  const auto start = std::chrono::steady_clock::now();
  const Outcome out = bench(server, small(100, 1));
  EXPECT_EQ(out.exit_code, kExitInterrupted);
  EXPECT_EQ(out.json["partial"], true);
  EXPECT_EQ(out.json["num_ok"], 3);
  EXPECT_EQ(out.json["num_aborted"], 1);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

TEST(Bench, AnUnwritableFileIsToldBeforeTheRun) {
  std::atomic<int> num_calls{0};
  const MockServer server([&](int, auto&, auto&, Writer&) {
    num_calls.fetch_add(1);
    return grpc::Status::OK;
  });
  BenchOptions options = small(1, 1);
  options.connection.address = server.address();
  options.json_file = "/no/such/folder/bench.json";
  EXPECT_EQ(run_bench(options, interrupts()), kExitFailed);
  EXPECT_EQ(num_calls.load(), 0);
}

}  // namespace
}  // namespace folio::client
