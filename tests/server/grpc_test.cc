// Calls of folio.v1.Generation over gRPC, in process.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
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

TEST_F(GrpcTest, WhileLoadingCallsAreUnavailableAndHealthSaysNotServing) {
  EXPECT_EQ(generate(greedy("a", 1)).error_code(), StatusCode::UNAVAILABLE);
  grpc::ClientContext stream_context;
  const auto reader = stub_->GenerateStream(&stream_context, greedy("a", 1));
  v1::GenerateChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::UNAVAILABLE);
  grpc::ClientContext load_context;
  v1::Load load;
  EXPECT_EQ(control_->GetLoad(&load_context, {}, &load).error_code(), StatusCode::UNAVAILABLE);
  for (const char* service : {"", "folio.v1.Generation", "folio.v1.Control"}) EXPECT_EQ(health(service), 2) << service;
  serve();
  for (const char* service : {"", "folio.v1.Generation", "folio.v1.Control"}) EXPECT_EQ(health(service), 1) << service;
  EXPECT_EQ(health("nobody"), -static_cast<int>(StatusCode::NOT_FOUND));
}

TEST_F(GrpcTest, UnaryAndStreamAgree) {
  serve();
  v1::GenerateResponse whole;
  ASSERT_TRUE(generate(greedy("a", 17), &whole).ok());
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 17));
  std::string text;
  std::vector<v1::GenerateChunk> chunks;
  v1::GenerateChunk chunk;
  while (reader->Read(&chunk)) {
    chunks.push_back(chunk);
    for (const v1::Output& output : chunk.outputs()) text += output.text();
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(text, "bcdefghijklmnopqr");
  EXPECT_EQ(text, whole.outputs(0).text());
  EXPECT_TRUE(chunks.front().has_prompt_info());
  EXPECT_EQ(chunks.back().outputs(0).finish_reason(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(chunks.back().usage().output_tokens(), whole.usage().output_tokens());
}

TEST_F(GrpcTest, BytesThatDoNotParseAreInvalidArgument) {
  serve();
  for (const char* method : {"Generate", "GenerateStream", "Chat", "ChatStream", "Tokenize", "Detokenize",
                             "ApplyChatTemplate", "ListModels"}) {
    const grpc::Status status = call_raw(std::string("/folio.v1.Generation/") + method, "\xFF\xFF\xFF\xFF");
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("folio.v1."));
  }
  for (const char* method : {"GetServerInfo", "GetLoad", "WatchLoad", "DumpBlocks", "Abort", "Drain"}) {
    const grpc::Status status = call_raw(std::string("/folio.v1.Control/") + method, "\xFF\xFF\xFF\xFF");
    EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << method;
  }
  EXPECT_FALSE(drained_);
  // Field 3, `text`, with bytes that are not UTF-8.
  EXPECT_EQ(call_raw("/folio.v1.Generation/Generate", "\x1A\x02\xC0\x80").error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(generate(greedy("a", 1)).ok());
}

TEST_F(GrpcTest, TooLargeMessagesAreRefusedWithTheLimitAndTheConnectionLives) {
  serve();
  const grpc::Status status = generate(greedy(std::string(GrpcListener::kMaxRequestBytes + 1, 'x'), 1));
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr(std::to_string(GrpcListener::kMaxRequestBytes)));
  EXPECT_EQ(generate(greedy(std::string(5 << 20, 'x'), 1)).error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(generate(greedy("a", 1)).ok());
}

// A13
TEST_F(GrpcTest, EchoedNamesArriveWhole) {
  serve();
  v1::GenerateRequest request = greedy("a", 1);
  request.set_model("\xE6\xBC\xA2\xF0\x9F\xA6\x99\n100%");
  const grpc::Status status = generate(request);
  EXPECT_EQ(status.error_code(), StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), HasSubstr(request.model()));
}

TEST_F(GrpcTest, AFullQueueSaysWhenToTryAgain) {
  serve();
  model_.hold();
  std::vector<std::thread> threads;
  std::atomic<int> num_ok{0};
  std::atomic<int> num_refused{0};
  for (int i = 0; i < 40; ++i) {
    threads.emplace_back([&] {
      grpc::ClientContext context;
      v1::GenerateResponse response;
      const grpc::Status status = stub_->Generate(&context, greedy("abc", 2), &response);
      if (status.ok()) {
        num_ok.fetch_add(1);
      } else {
        EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
        EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 1U);
        num_refused.fetch_add(1);
      }
    });
  }
  while (num_refused.load() < 20) std::this_thread::sleep_for(1ms);
  model_.release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_ok.load() + num_refused.load(), 40);
  EXPECT_GE(num_ok.load(), 4);
}

TEST_F(GrpcTest, WhatCannotBeServedHasNoRetryHint) {
  serve();
  grpc::ClientContext context;
  v1::GenerateResponse response;
  EXPECT_EQ(stub_->Generate(&context, greedy(std::string(512, 'x'), 2), &response).error_code(),
            StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0U);
}

TEST_F(GrpcTest, CancelEndsTheRequestInEveryState) {
  serve();
  model_.hold();
  grpc::ClientContext running;
  const auto reader = stub_->GenerateStream(&running, greedy("a", 400));
  model_.allow(3);
  v1::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  running.TryCancel();
  model_.release();
  while (reader->Read(&chunk)) {
  }
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);

  tokenizer_.hold(true);
  grpc::ClientContext waiting;
  std::thread unary([&] {
    v1::GenerateResponse response;
    EXPECT_EQ(stub_->Generate(&waiting, greedy("a", 400), &response).error_code(), StatusCode::CANCELLED);
  });
  tokenizer_.wait_until_encoding();
  waiting.TryCancel();
  unary.join();
  tokenizer_.hold(false);
}

TEST_F(GrpcTest, TheDeadlineOfTheTransportCountsEarly) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 400ms);
  const auto reader = stub_->GenerateStream(&context, greedy("a", 400));
  std::thread pace([this] {
    for (int i = 0; i < 60; ++i) {
      std::this_thread::sleep_for(10ms);
      model_.allow(1);
    }
  });
  v1::FinishReason reason = v1::FINISH_REASON_UNSPECIFIED;
  v1::GenerateChunk chunk;
  while (reader->Read(&chunk)) {
    for (const v1::Output& output : chunk.outputs()) reason = output.finish_reason();
  }
  const grpc::Status status = reader->Finish();
  pace.join();
  EXPECT_EQ(reason, v1::FINISH_REASON_DEADLINE);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

}  // namespace
}  // namespace folio
