// API keys over gRPC: who is let in, and to what.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/server/grpc_fixture.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using grpc::StatusCode;
using test::GrpcTest;
using ::testing::HasSubstr;
using ::testing::Not;

struct KeyFolder {
  testing::TempFolder folder;
  std::string path = folder.write("keys.toml",
                                  "[keys.user]\n"
                                  "sha256 = \"8ed3f6ad685b959ead7022518e1af76cd816f8e8ec7ccdda1ed4018e8f2223f8\"\n"
                                  "tenant = \"gold\"\n"
                                  "highest_priority = 2\n"
                                  "[keys.operator]\n"
                                  "sha256 = \"f44e64e75f3948e9f73f8dfa94721c4ce8cbb4f265c4790c702b2d41cfbf2753\"\n"
                                  "admin = true\n");
};
const std::string kUser = "Bearer alpha";
const std::string kOperator = "Bearer beta";

class GrpcKeysTest : private KeyFolder, public GrpcTest {
 protected:
  GrpcKeysTest() : GrpcTest(path) {}

  static void say(grpc::ClientContext& context, const std::vector<std::string>& headers) {
    for (const std::string& header : headers) context.AddMetadata("authorization", header);
  }
  grpc::Status generate_as(const std::vector<std::string>& headers, const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    say(context, headers);
    v1::GenerateResponse response;
    return stub_->Generate(&context, request, &response);
  }
  grpc::Status stream_as(const std::vector<std::string>& headers, const v1::GenerateRequest& request) {
    grpc::ClientContext context;
    say(context, headers);
    const auto reader = stub_->GenerateStream(&context, request);
    v1::GenerateChunk chunk;
    while (reader->Read(&chunk)) {
    }
    return reader->Finish();
  }
  grpc::Status call_as(const std::vector<std::string>& headers, const std::string& method) {
    return call_raw(method, "", nullptr, headers);
  }
};

const char* const kUserMethods[] = {"Generate",   "GenerateStream",    "Chat",      "ChatStream", "Tokenize",
                                    "Detokenize", "ApplyChatTemplate", "ListModels"};
const char* const kControlMethods[] = {"GetServerInfo", "GetLoad",          "WatchLoad", "DumpBlocks",
                                       "Abort",         "FlushPrefixCache", "Unpin",     "Drain"};

// A09
TEST_F(GrpcKeysTest, EveryMethodWantsAKey) {
  for (const bool loaded : {false, true}) {
    if (loaded) serve();
    for (const std::vector<std::string>& headers : {std::vector<std::string>{},
                                                    {"Bearer wrong"},
                                                    {"Bearer"},
                                                    {"alpha"},
                                                    {"Basic alpha"},
                                                    {"Bearer  alpha"},
                                                    {kUser, kUser},
                                                    {kUser, "Bearer wrong"}}) {
      for (const char* method : kUserMethods) {
        EXPECT_EQ(call_as(headers, std::string("/folio.v1.Generation/") + method).error_code(),
                  StatusCode::UNAUTHENTICATED)
            << method;
      }
      for (const char* method : kControlMethods) {
        EXPECT_EQ(call_as(headers, std::string("/folio.v1.Control/") + method).error_code(),
                  StatusCode::UNAUTHENTICATED)
            << method;
      }
    }
  }
  EXPECT_FALSE(drained_);
  const grpc::Status refused = generate_as({"Bearer sk-my-secret"}, greedy("a", 1));
  EXPECT_EQ(refused.error_message(), "authorization: the API key is not known");
  EXPECT_EQ(health(""), 1) << "free, as reflection";
  std::string answer;
  call_raw("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", "\x3A\x01*", &answer);
  EXPECT_THAT(answer, HasSubstr("folio.v1.Generation"));
}

TEST_F(GrpcKeysTest, AKeyOpensWhatIsItsOwn) {
  EXPECT_EQ(generate_as({kUser}, greedy("a", 1)).error_code(), StatusCode::UNAVAILABLE) << "loading";
  serve();
  for (const std::string& header : {kUser, std::string("bearer alpha"), kOperator}) {
    EXPECT_TRUE(generate_as({header}, greedy("a", 1)).ok()) << header;
    EXPECT_TRUE(stream_as({header}, greedy("a", 1)).ok()) << header;
    EXPECT_TRUE(call_as({header}, "/folio.v1.Generation/ListModels").ok());
    EXPECT_TRUE(call_as({header}, "/folio.v1.Generation/Tokenize").ok());
  }
}

TEST_F(GrpcKeysTest, WhatTheKeyForbidsIsNamed) {
  serve();
  v1::GenerateRequest other = greedy("a", 1);
  other.set_tenant("silver");
  v1::GenerateRequest above = greedy("a", 1);
  above.set_priority(3);
  for (const grpc::Status& status : {generate_as({kUser}, other), stream_as({kUser}, other)}) {
    EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(status.error_message(), HasSubstr("tenant: \"silver\""));
  }
  for (const grpc::Status& status : {generate_as({kUser}, above), stream_as({kUser}, above)}) {
    EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(status.error_message(), HasSubstr("priority: 3"));
  }
  above.set_priority(2);
  above.set_tenant("gold");
  EXPECT_TRUE(generate_as({kUser}, above).ok());
}

TEST_F(GrpcKeysTest, ControlIsForAdmins) {
  for (const char* method : kControlMethods) {
    const grpc::Status status = call_as({kUser}, std::string("/folio.v1.Control/") + method);
    EXPECT_EQ(status.error_code(), StatusCode::PERMISSION_DENIED) << method;
    EXPECT_THAT(status.error_message(), HasSubstr("admin"));
  }
  EXPECT_FALSE(drained_);
  serve();
  for (const char* method : {"GetServerInfo", "GetLoad", "DumpBlocks", "FlushPrefixCache", "Unpin", "Drain"}) {
    EXPECT_TRUE(call_as({kOperator}, std::string("/folio.v1.Control/") + method).ok()) << method;
  }
  EXPECT_TRUE(drained_);
}

TEST_F(GrpcKeysTest, ALargeHeaderIsRefusedAndTheServerLives) {
  serve();
  const grpc::Status refused =
      generate_as({"Bearer " + std::string(GrpcListener::kMaxMetadataBytes, 'x')}, greedy("a", 1));
  EXPECT_EQ(refused.error_code(), StatusCode::RESOURCE_EXHAUSTED) << refused.error_message();
  EXPECT_THAT(refused.error_message(), Not(HasSubstr("xxxx")));
  // The library may close the connection over it.
  grpc::ChannelArguments own_connection;
  own_connection.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ =
      v1::Generation::NewStub(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), own_connection));
  const grpc::Status next = generate_as({kUser}, greedy("a", 1));
  EXPECT_TRUE(next.ok()) << next.error_code() << " " << next.error_message();
}

}  // namespace
}  // namespace folio
