// folio.v1.Control, listeners, health under load and shutdown, in process.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/grpc_fixture.h"

namespace folio {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;
using test::GrpcTest;
using ::testing::HasSubstr;

TEST_F(GrpcTest, LoadAndHealthAnswerWhileAPromptIsTokenisedAndAStepRuns) {
  serve();
  model_.hold();
  grpc::ClientContext running_context;
  const auto running = stub_->GenerateStream(&running_context, greedy("a", 400));
  model_.allow(1);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(running->Read(&chunk));
  tokenizer_.hold(true);
  std::thread slow([this] {
    v1::TokenizeRequest request;
    request.set_text(std::string(1 << 20, 'x'));
    v1::TokenizeResponse response;
    grpc::ClientContext context;
    // The answer is above the client's limit; it is the server's work that counts.
    EXPECT_EQ(stub_->Tokenize(&context, request, &response).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  });
  tokenizer_.wait_until_encoding();
  std::vector<double> times;
  for (int i = 0; i < 20; ++i) {
    const auto start = std::chrono::steady_clock::now();
    grpc::ClientContext context;
    v1::Load load;
    EXPECT_TRUE(control_->GetLoad(&context, {}, &load).ok());
    EXPECT_EQ(load.num_front_waiting(), 1);
    EXPECT_EQ(health(""), 1);
    times.push_back(to_ms(std::chrono::steady_clock::now() - start));
  }
  std::sort(times.begin(), times.end());
  EXPECT_LT(times[times.size() / 2], 50);  // the median: the machine may be busy with other tests
  tokenizer_.hold(false);
  slow.join();
  running_context.TryCancel();
  model_.release();
  while (running->Read(&chunk)) {
  }
  EXPECT_EQ(running->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(GrpcTest, AnAbortedStreamSaysCancelled) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 400));
  model_.allow(2);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  v1::AbortRequest abort;
  abort.set_id(chunk.prompt_info().id());
  grpc::ClientContext abort_context;
  v1::AbortResponse ignored;
  EXPECT_TRUE(control_->Abort(&abort_context, abort, &ignored).ok());
  model_.release();
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  while (reader->Read(&chunk)) {
    for (const v1::Output& output : chunk.outputs()) reason = output.finish_reason();
  }
  EXPECT_EQ(reason, v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

// Also those that wait behind others, and in the unary form.
TEST_F(GrpcTest, AnAbortEndsAUnaryAndAWaitingCallToo) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 400));
  model_.allow(1);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));  // the next step is held, and what comes now waits
  const std::uint64_t first = chunk.prompt_info().id();
  std::vector<std::thread> calls;
  for (int i = 0; i < 3; ++i) {
    calls.emplace_back([this] {
      const grpc::Status status = generate(greedy("a", 400));
      EXPECT_EQ(status.error_code(), StatusCode::CANCELLED);
      EXPECT_EQ(status.error_message(), "cancelled");
    });
  }
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (engine_.load().num_waiting != 3 && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(engine_.load().num_waiting, 3);
  v1::AbortResponse ignored;
  for (std::uint64_t id = first; id <= first + 4; ++id) {  // one of them is nobody's
    v1::AbortRequest abort;
    abort.set_id(id);
    grpc::ClientContext abort_context;
    EXPECT_TRUE(control_->Abort(&abort_context, abort, &ignored).ok());
  }
  model_.release();
  for (std::thread& thread : calls) thread.join();
  while (reader->Read(&chunk)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
  grpc::ClientContext unset;
  EXPECT_EQ(control_->Abort(&unset, {}, &ignored).error_code(), StatusCode::INVALID_ARGUMENT);
}

// Each call with a context of its own.
template <class Request, class Response>
grpc::Status call(v1::Control::Stub& stub,
                  grpc::Status (v1::Control::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response& response) {
  grpc::ClientContext context;
  return (stub.*method)(&context, request, &response);
}

TEST_F(GrpcTest, BeforeTheModelIsLoadedControlIsUnavailable) {
  v1::FlushPrefixCacheResponse flushed;
  v1::UnpinResponse unpinned;
  v1::Load load;
  for (const grpc::Status& status :
       {call(*control_, &v1::Control::Stub::FlushPrefixCache, v1::FlushPrefixCacheRequest(), flushed),
        call(*control_, &v1::Control::Stub::Unpin, v1::UnpinRequest(), unpinned),
        call(*control_, &v1::Control::Stub::GetLoad, v1::GetLoadRequest(), load)}) {
    EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  }
}

// Both return while a step runs, and an id that nobody pinned is no error.
TEST_F(GrpcTest, FlushAndUnpinAnswerAtOnce) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 400));
  model_.allow(1);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  v1::FlushPrefixCacheResponse flushed;
  EXPECT_TRUE(call(*control_, &v1::Control::Stub::FlushPrefixCache, v1::FlushPrefixCacheRequest(), flushed).ok());
  v1::UnpinRequest unpin;
  v1::UnpinResponse unpinned;
  for (const std::uint64_t id : {std::uint64_t{0}, chunk.prompt_info().id(), std::uint64_t{123456}}) {
    unpin.set_id(id);
    EXPECT_TRUE(call(*control_, &v1::Control::Stub::Unpin, unpin, unpinned).ok());
  }
  context.TryCancel();
  model_.release();
  while (reader->Read(&chunk)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(GrpcTest, LoadShowsCacheAndPins) {
  serve();
  v1::GenerateRequest request = greedy(std::string(40, 'x'), 1);
  request.mutable_cache()->set_pin_ms(3'600'000);
  v1::GenerateResponse first;
  ASSERT_TRUE(generate(request, &first).ok());
  EXPECT_EQ(first.usage().pinned_tokens(), 32);
  v1::GenerateResponse second;
  ASSERT_TRUE(generate(greedy(std::string(40, 'x'), 1), &second).ok());
  EXPECT_EQ(second.prompt_info().cached_tokens(), second.usage().cached_tokens());
  EXPECT_GE(second.usage().cached_tokens(), 32);
  v1::Load load;
  ASSERT_TRUE(call(*control_, &v1::Control::Stub::GetLoad, v1::GetLoadRequest(), load).ok());
  EXPECT_EQ(load.num_pins(), 1);
  EXPECT_EQ(load.blocks_pinned(), 2);
  EXPECT_EQ(load.cached_tokens(), second.usage().cached_tokens());
  EXPECT_EQ(load.num_pins_released(), 0);
}

TEST_F(GrpcTest, WatchLoadStreamsAndEndsAtShutdown) {
  serve();
  grpc::ClientContext context;
  v1::WatchLoadRequest request;
  request.set_interval_ms(10);
  const auto reader = control_->WatchLoad(&context, request);
  v1::Load load;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(reader->Read(&load));
  EXPECT_EQ(load.blocks_total(), 64);
  control_service_.end_watches();
  while (reader->Read(&load)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::UNAVAILABLE);

  grpc::ClientContext bad_context;
  request.set_interval_ms(1);
  const auto bad = control_->WatchLoad(&bad_context, request);
  EXPECT_FALSE(bad->Read(&load));
  EXPECT_EQ(bad->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(GrpcTest, ACancelledWatchIsForgotten) {
  serve();
  grpc::ClientContext context;
  v1::WatchLoadRequest request;
  request.set_interval_ms(3'600'000);
  const auto reader = control_->WatchLoad(&context, request);
  v1::Load load;
  ASSERT_TRUE(reader->Read(&load));
  context.TryCancel();
  EXPECT_FALSE(reader->Read(&load));
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(GrpcTest, DumpBlocksGivesTablesAndBlocks) {
  serve();
  v1::GenerateRequest pin = greedy(std::string(40, 'x'), 1);
  pin.mutable_cache()->set_pin_ms(3'600'000);
  ASSERT_TRUE(generate(pin).ok());
  model_.hold();
  grpc::ClientContext running_context;
  const auto running = stub_->GenerateStream(&running_context, greedy(std::string(20, 'y'), 400));
  model_.allow(3);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(running->Read(&chunk));
  const std::uint64_t id = chunk.prompt_info().id();
  std::thread allow([this] {  // it waits for the step under way
    std::this_thread::sleep_for(50ms);
    model_.release();
  });
  grpc::ClientContext context;
  const auto reader = control_->DumpBlocks(&context, {});
  v1::BlockDump page;
  ASSERT_TRUE(reader->Read(&page));
  allow.join();
  EXPECT_EQ(page.info().num_blocks(), 64);
  ASSERT_EQ(page.blocks_size(), 64);
  EXPECT_EQ(page.first_block(), 1);
  ASSERT_EQ(page.tables_size(), page.info().num_tables());
  EXPECT_EQ(page.tables(0).request_id(), id);
  EXPECT_GE(page.tables(0).num_tokens(), 21);
  EXPECT_GE(page.tables(0).blocks_size(), 2);
  EXPECT_TRUE(page.tables(1).pin());
  EXPECT_EQ(page.tables(1).blocks_size(), 2);
  for (const std::int32_t block : page.tables(0).blocks()) {
    EXPECT_EQ(page.blocks(block - 1).state(), v1::BLOCK_STATE_HELD);
    EXPECT_FALSE(page.blocks(block - 1).pinned());
  }
  EXPECT_FALSE(reader->Read(&page));
  EXPECT_TRUE(reader->Finish().ok());
  running_context.TryCancel();
  while (running->Read(&chunk)) {
  }
  running->Finish();
}

// A dump that waits for a long step ends when its caller goes, and only so many wait.
TEST_F(GrpcTest, DumpsThatWaitCanBeCancelledAndAreFew) {
  serve();
  model_.hold();
  grpc::ClientContext running_context;
  const auto running = stub_->GenerateStream(&running_context, greedy("a", 400));
  model_.wait_until_held();
  const auto limit = std::chrono::steady_clock::now() + 10s;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::thread> waiting;
  std::atomic<int> num_refused{0};
  std::atomic<int> num_cancelled{0};
  for (int i = 0; i < ControlService::kMaxDumps + 3; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    waiting.emplace_back([this, &num_refused, &num_cancelled, context = contexts.back().get()] {
      const auto reader = control_->DumpBlocks(context, {});
      v1::BlockDump page;
      while (reader->Read(&page)) {
      }
      const StatusCode code = reader->Finish().error_code();
      if (code == StatusCode::RESOURCE_EXHAUSTED) num_refused.fetch_add(1);
      if (code == StatusCode::CANCELLED) num_cancelled.fetch_add(1);
    });
  }
  while (num_refused.load() < 3 && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(num_refused.load(), 3);
  for (const auto& context : contexts) context->TryCancel();
  for (std::thread& thread : waiting) thread.join();
  EXPECT_EQ(num_cancelled.load(), ControlService::kMaxDumps);
  model_.release();
  running_context.TryCancel();
  v1::GenerateChunk chunk;
  while (running->Read(&chunk)) {
  }
  running->Finish();
  bool has_room = false;  // once the server knows of all that were cancelled
  while (!has_room && std::chrono::steady_clock::now() < limit) {
    grpc::ClientContext context;
    const auto reader = control_->DumpBlocks(&context, {});
    v1::BlockDump page;
    while (reader->Read(&page)) {
    }
    has_room = reader->Finish().ok();
  }
  EXPECT_TRUE(has_room);
}

TEST_F(GrpcTest, DrainAsksTheProcessToStop) {
  grpc::ClientContext context;
  v1::DrainResponse response;
  EXPECT_TRUE(control_->Drain(&context, {}, &response).ok());
  EXPECT_TRUE(drained_);
}

// A12
TEST_F(GrpcTest, ATakenPortIsNamedWithTheReason) {
  const auto start = std::chrono::steady_clock::now();
  for (const std::string& address : {address_, "0.0.0.0:" + std::to_string(listener_->port())}) {
    try {
      const GrpcListener second(address, {});
      FAIL() << "shared " << address;
    } catch (const std::runtime_error& error) {
      EXPECT_THAT(error.what(), HasSubstr(address));
      EXPECT_THAT(error.what(), HasSubstr("in use"));
    }
  }
  EXPECT_THROW(GrpcListener("no.such.host.invalid:0", {}), std::runtime_error);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
}

// A03: a stream whose reader sleeps does not hold the shutdown.
TEST_F(GrpcTest, ShutdownHasADeadline) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 400));
  model_.allow(1);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  const auto start = std::chrono::steady_clock::now();
  std::thread release([this] {
    std::this_thread::sleep_for(400ms);
    model_.release();
  });
  listener_->shutdown(start + 200ms);
  listener_.reset();
  release.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  while (reader->Read(&chunk)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(GrpcTest, ReflectionListsTheServices) {
  // ServerReflectionRequest with list_services (field 7), answered on a stream: the unary form reads the first message.
  std::string answer;
  call_raw("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3A\x01*", &answer);
  EXPECT_THAT(answer, HasSubstr("folio.v1.Generation"));
  EXPECT_THAT(answer, HasSubstr("grpc.health.v1.Health"));
}

}  // namespace
}  // namespace folio
