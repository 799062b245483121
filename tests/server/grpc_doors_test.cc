// Readers that do not read, answers that are too large, connections that grow old, and TLS, in process.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/server/certificates.h"
#include "tests/server/grpc_fixture.h"

namespace folio {
namespace {

using namespace std::chrono_literals;
using grpc::StatusCode;
using test::GrpcTest;
using ::testing::HasSubstr;

class UnreadTest : public GrpcTest {
 protected:
  // Much to read: log probabilities of many tokens.
  static v1::GenerateRequest wordy() {
    v1::GenerateRequest request = greedy("a", 500);
    request.set_n(8);
    request.set_logprobs(20);
    return request;
  }
  // Through a client that takes little ahead of its reader; by itself it would take all.
  std::unique_ptr<v1::Generation::Stub> narrow_stub() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 16 << 10);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return v1::Generation::NewStub(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  }
};

TEST_F(UnreadTest, AReaderThatTakesNothingIsEnded) {
  serve();
  const auto stub = narrow_stub();
  grpc::ClientContext context;
  const auto reader = stub->GenerateStream(&context, wordy());
  v1::GenerateChunk chunk;
  ASSERT_TRUE(reader->Read(&chunk));
  const auto limit = std::chrono::steady_clock::now() + 10s;
  while (generation_.num_live_calls() > 0 && std::chrono::steady_clock::now() < limit) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(generation_.num_live_calls(), 0);
  EXPECT_EQ(watch_.num_ended(), 1);
  grpc::ClientContext load_context;
  v1::Load load;
  ASSERT_TRUE(control_->GetLoad(&load_context, {}, &load).ok());
  EXPECT_EQ(load.num_write_timeouts(), 1);
  while (reader->Read(&chunk)) {
  }
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::CANCELLED);
  EXPECT_THAT(status.error_message(), HasSubstr("nothing of the answer was read for 0.5 s (--write-timeout)"));
}

// It takes longer than the time-out for the whole, but never for a chunk.
TEST_F(UnreadTest, ASlowReaderIsNot) {
  serve();
  const auto stub = narrow_stub();
  grpc::ClientContext context;
  const auto reader = stub->GenerateStream(&context, wordy());
  v1::GenerateChunk chunk;
  std::size_t num_tokens = 0;
  const auto start = std::chrono::steady_clock::now();
  while (reader->Read(&chunk)) {
    for (const v1::Output& output : chunk.outputs()) num_tokens += static_cast<std::size_t>(output.tokens_size());
    if (std::chrono::steady_clock::now() - start < 3 * kWriteTimeout) std::this_thread::sleep_for(kWriteTimeout / 10);
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(num_tokens, 8U * 500U);
  EXPECT_GT(std::chrono::steady_clock::now() - start, 2 * kWriteTimeout);
  EXPECT_EQ(watch_.num_ended(), 0);
}

// What nobody waits for is not watched: a queue and a slow model are no reader's fault.
TEST_F(UnreadTest, AStreamThatHasNothingToSayIsNotStalled) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 3));
  std::this_thread::sleep_for(3 * kWriteTimeout);
  model_.release();
  v1::GenerateChunk chunk;
  while (reader->Read(&chunk)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(watch_.num_ended(), 0);
}

TEST_F(GrpcTest, AnAnswerThatIsTooLargeIsRefusedWithTheLimit) {
  serve();
  v1::DetokenizeRequest request;
  for (int i = 0; i < 9 << 20; ++i) request.add_tokens('x');
  grpc::ClientContext context;
  v1::DetokenizeResponse response;
  const grpc::Status status = stub_->Detokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("above the limit of 16777216 bytes"));
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"), 0U);
}

TEST_F(GrpcTest, ATextIsTokenisedUpToALimit) {
  serve();
  const auto tokenize = [this](std::size_t num_bytes) {
    v1::TokenizeRequest request;
    request.set_text(std::string(num_bytes, 'x'));
    grpc::ClientContext context;
    v1::TokenizeResponse response;
    return stub_->Tokenize(&context, request, &response);
  };
  const grpc::Status status = tokenize((1U << 20U) + 1);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "text: 1048577 bytes of text are over the limit of 1048576");
  EXPECT_NE(tokenize(1U << 19U).error_code(), StatusCode::INVALID_ARGUMENT);
}

// A library's own sockets would be deaf from the first connection on for which there was no file.
TEST_F(GrpcTest, AListenerOutlivesAFloodOfConnections) {
  serve();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<int> held;  // until there are no files at all
  for (int fd = socket(AF_INET, SOCK_STREAM, 0); fd >= 0; fd = socket(AF_INET, SOCK_STREAM, 0)) {
    held.push_back(fd);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(listener_->port()));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }
  std::this_thread::sleep_for(300ms);
  for (const int fd : held) close(fd);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_GT(held.size(), 50U);

  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
  const auto stub =
      v1::Generation::NewStub(grpc::CreateCustomChannel(address_, grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 20s);
  v1::GenerateResponse response;
  const grpc::Status status = stub->Generate(&context, greedy("a", 3), &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

TEST_F(GrpcTest, AConnectionTakesSoManyCallsAtOnce) {
  serve();
  const auto queue = std::make_unique<grpc::CompletionQueue>();
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientAsyncReader<v1::Load>>> readers;
  v1::WatchLoadRequest request;
  request.set_interval_ms(3'600'000);
  std::vector<v1::Load> loads(GrpcListener::kMaxStreamsPerConnection + 1);
  const auto next = [&](std::chrono::milliseconds patience) {
    void* tag = nullptr;
    bool ok = false;
    return queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + patience) ==
               grpc::CompletionQueue::GOT_EVENT &&
           ok;
  };
  const auto open = [&] {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(control_->AsyncWatchLoad(contexts.back().get(), request, queue.get(), nullptr));
  };
  for (int i = 0; i < GrpcListener::kMaxStreamsPerConnection; ++i) {
    open();
    ASSERT_TRUE(next(10s)) << i;
    readers.back()->Read(&loads[static_cast<std::size_t>(i)], nullptr);
    ASSERT_TRUE(next(10s)) << i;
  }
  // The one above waits in the client until another ends.
  open();
  EXPECT_FALSE(next(300ms));
  contexts.front()->TryCancel();
  ASSERT_TRUE(next(10s));
  readers.back()->Read(&loads.back(), nullptr);
  EXPECT_TRUE(next(10s));
  EXPECT_GT(loads.back().blocks_total(), 0);
  for (const auto& context : contexts) context->TryCancel();
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
}

class OldConnectionTest : public GrpcTest {
 protected:
  ListenerOptions listener_options() override {
    ListenerOptions options;
    options.max_connection_age = 300ms;
    options.max_connection_age_grace = 60s;
    return options;
  }
};

TEST_F(OldConnectionTest, CallsOutliveTheConnectionsAge) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 5));
  std::this_thread::sleep_for(1s);
  // The first is still there, on the old connection; this one comes on another.
  std::thread second([this] { EXPECT_TRUE(generate(greedy("a", 1)).ok()); });
  std::this_thread::sleep_for(200ms);
  model_.release();
  second.join();
  v1::GenerateChunk chunk;
  while (reader->Read(&chunk)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

class ShortGraceTest : public OldConnectionTest {
 protected:
  ListenerOptions listener_options() override {
    ListenerOptions options = OldConnectionTest::listener_options();
    options.max_connection_age_grace = 100ms;
    return options;
  }
};

TEST_F(ShortGraceTest, AfterTheGraceCallsEnd) {
  serve();
  model_.hold();
  grpc::ClientContext context;
  const auto reader = stub_->GenerateStream(&context, greedy("a", 5));
  v1::GenerateChunk chunk;
  EXPECT_FALSE(reader->Read(&chunk));
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::UNAVAILABLE);
}

class TlsListenerTest : public GrpcTest {
 protected:
  ListenerOptions listener_options() override {
    ListenerOptions options;
    options.tls = &files_;
    return options;
  }
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials() override { return credentials(authority_, nullptr); }
  static std::shared_ptr<grpc::ChannelCredentials> credentials(const test::Certified& authority,
                                                               const test::Certified* client) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = authority.certificate;
    if (client != nullptr) {
      options.pem_cert_chain = client->certificate;
      options.pem_private_key = client->key;
    }
    return grpc::SslCredentials(options);
  }
  StatusCode code_with(const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    const auto stub = v1::Generation::NewStub(grpc::CreateChannel(address_, credentials));
    grpc::ClientContext context;
    v1::GenerateResponse response;
    return stub->Generate(&context, greedy("a", 1), &response).error_code();
  }

  const test::Certified authority_ = test::make_authority("ours");
  const test::Certified stranger_ = test::make_authority("a stranger's");
  const test::Certified server_ = test::make_certified(authority_, "server");
  TlsFiles files_{server_.certificate, server_.key, ""};
};

TEST_F(TlsListenerTest, OnlyThroughTls) {
  serve();
  EXPECT_EQ(code_with(channel_credentials()), StatusCode::OK);
  EXPECT_EQ(code_with(grpc::InsecureChannelCredentials()), StatusCode::UNAVAILABLE);
  EXPECT_EQ(code_with(credentials(stranger_, nullptr)), StatusCode::UNAVAILABLE) << "not the server that it expects";
  EXPECT_EQ(health(""), 1);
}

class MutualTlsTest : public TlsListenerTest {
 protected:
  MutualTlsTest() { files_.client_ca = authority_.certificate; }
  std::shared_ptr<grpc::ChannelCredentials> channel_credentials() override { return credentials(authority_, &client_); }

  const test::Certified client_ = test::make_certified(authority_, "client");
};

TEST_F(MutualTlsTest, OnlyClientsOfTheAuthority) {
  serve();
  EXPECT_EQ(code_with(channel_credentials()), StatusCode::OK);
  EXPECT_EQ(code_with(credentials(authority_, nullptr)), StatusCode::UNAVAILABLE);
  const test::Certified other = test::make_certified(stranger_, "client");
  EXPECT_EQ(code_with(credentials(authority_, &other)), StatusCode::UNAVAILABLE);
  const test::Certified expired = test::make_certified(authority_, "client", -9, -1);
  EXPECT_EQ(code_with(credentials(authority_, &expired)), StatusCode::UNAVAILABLE);
  EXPECT_EQ(code_with(channel_credentials()), StatusCode::OK);
}

}  // namespace
}  // namespace folio
