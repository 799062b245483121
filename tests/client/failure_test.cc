#include "client/failure.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "folio/v1/control.grpc.pb.h"
#include "folio/v1/generation.grpc.pb.h"
#include "tests/client/mock_http_server.h"
#include "tests/server/certificates.h"
#include "tests/support/temp_folder.h"

namespace folio::client {
namespace {

using grpc::StatusCode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Connection connection_to(const std::string& address) {
  Connection out;
  out.address = address;
  return out;
}

// What a command gets there.
Failure failure_at(const Connection& connection) {
  const auto stub = v1::Generation::NewStub(make_channel(connection));
  grpc::ClientContext context;
  v1::ListModelsResponse response;
  return explain(stub->ListModels(&context, {}, &response), connection, Listener::kGeneration);
}

TEST(Failures, NobodyThere) {
  const Failure failure = failure_at(connection_to("127.0.0.1:1"));
  EXPECT_EQ(failure.exit_code, kExitNoServer);
  EXPECT_THAT(failure.text, StartsWith("no server at 127.0.0.1:1\nstart one with: folio-server "));
  EXPECT_THAT(failure_at(connection_to("nobody.invalid:1")).text,
              StartsWith("no server at nobody.invalid:1: no such host"));
}

TEST(Failures, AnHttpPort) {
  const test::MockHttpServer server([](const test::MockRequest&, test::MockPeer& peer) {
    peer.send(test::response(400, "application/json", "{}"));
    peer.close();
  });
  const Failure failure = failure_at(connection_to(server.address()));
  EXPECT_EQ(failure.exit_code, kExitNoServer);
  EXPECT_THAT(failure.text, HasSubstr("speaks HTTP, not gRPC"));
  EXPECT_THAT(failure.text, HasSubstr("--grpc-port (50051)"));
}

TEST(Failures, AServerThatIsNoneOfOurs) {
  const test::MockHttpServer server([](const test::MockRequest&, test::MockPeer& peer) { peer.close(); });
  const Failure failure = failure_at(connection_to(server.address()));
  EXPECT_EQ(failure.exit_code, kExitNoServer);
  EXPECT_THAT(failure.text, HasSubstr("it may speak TLS (--tls-ca FILE), or be no gRPC server"));
}

TEST(Failures, TheOtherListener) {
  v1::Control::Service control;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&control);
  const auto server = builder.BuildAndStart();
  const Failure failure = failure_at(connection_to("127.0.0.1:" + std::to_string(port)));
  EXPECT_EQ(failure.exit_code, kExitNoServer);
  EXPECT_THAT(failure.text, HasSubstr("it may be the server's --control-listen"));
  const Failure control_failure = explain({StatusCode::UNIMPLEMENTED, ""}, connection_to("host:1"), Listener::kControl);
  EXPECT_THAT(control_failure.text, HasSubstr("it may be the server's --grpc-port"));
}

TEST(Failures, TheServersOwnWords) {
  const Connection connection;
  for (const StatusCode code :
       {StatusCode::INVALID_ARGUMENT, StatusCode::NOT_FOUND, StatusCode::PERMISSION_DENIED, StatusCode::UNAUTHENTICATED,
        StatusCode::RESOURCE_EXHAUSTED, StatusCode::FAILED_PRECONDITION}) {
    const Failure failure = explain({code, "words"}, connection, Listener::kGeneration);
    EXPECT_EQ(failure.exit_code, kExitRefused);
    EXPECT_EQ(failure.text, std::string(code_name(code)) + ": words");
  }
  for (const StatusCode code : {StatusCode::INTERNAL, StatusCode::DEADLINE_EXCEEDED, StatusCode::CANCELLED}) {
    EXPECT_EQ(explain({code, "words"}, connection, Listener::kGeneration).exit_code, kExitFailed);
  }
  const Failure loading = explain({StatusCode::UNAVAILABLE, "the model is loading"}, connection, Listener::kGeneration);
  EXPECT_EQ(loading.exit_code, kExitNoServer);
  EXPECT_EQ(loading.text, "UNAVAILABLE: the model is loading");
}

// What make_channel says of it, and the exit code; "" for one that it takes.
std::string refusal_of(const Connection& connection, int* exit_code = nullptr) {
  try {
    make_channel(connection);
  } catch (const CommandError& wrong) {
    if (exit_code != nullptr) *exit_code = wrong.exit_code();
    return wrong.what();
  } catch (const std::runtime_error& wrong) {
    return wrong.what();
  }
  return "";
}

TEST(Connection, AnAddressIsHostAndPort) {
  for (const char* good : {"localhost:1", "127.0.0.1:65535", "[::1]:50051", "a.b-c.example:80"}) {
    EXPECT_EQ(refusal_of(connection_to(good)), "");
  }
  for (const char* wrong : {"", "localhost", "127.0.0.1:99999", "127.0.0.1:0", ":50051", "host:", "host:+1",
                            "::1:50051", "http://127.0.0.1:50051", "a b:1", "host:1/x"}) {
    int exit_code = 0;
    EXPECT_THAT(refusal_of(connection_to(wrong), &exit_code),
                StartsWith("--address '" + std::string(wrong) + "': must be HOST:PORT"));
    EXPECT_EQ(exit_code, kExitUsage);
  }
}

TEST(Connection, AKeyThatNoRequestCanCarryIsRefusedAndNotShown) {
  for (const char* key : {"secret\r", "sec\nret", "secret\x7f", "secr\u00f6t"}) {
    Connection connection;
    connection.api_key = key;
    int exit_code = 0;
    EXPECT_THAT(refusal_of(connection, &exit_code),
                AllOf(StartsWith("--api-key (or FOLIO_API_KEY): has a "), Not(HasSubstr("sec"))));
    EXPECT_EQ(exit_code, kExitUsage);
  }
}

TEST(Connection, TlsFilesAreNamedByTheirFlags) {
  const testing::TempFolder folder;
  Connection connection;
  connection.tls_ca = "/no/such/file";
  EXPECT_EQ(refusal_of(connection), "--tls-ca /no/such/file: cannot be read");
  connection.tls_ca = folder.path("");
  EXPECT_EQ(refusal_of(connection), "--tls-ca " + folder.path("") + ": cannot be read");
  connection.tls_ca = folder.write("ca.pem", "127.0.0.1 localhost\n");
  EXPECT_EQ(refusal_of(connection), "--tls-ca " + connection.tls_ca + ": no PEM certificate in it");
  const test::Certified ours = test::make_authority("ours");
  connection.tls_ca = folder.write("made.pem", ours.certificate);
  EXPECT_EQ(refusal_of(connection), "");
  connection.tls_cert = connection.tls_key = connection.tls_ca;
  EXPECT_THAT(refusal_of(connection), StartsWith("--tls-key " + connection.tls_key + ": no PEM private key in it"));
  connection.tls_key = folder.write("other.key", test::make_authority("other").key);
  EXPECT_EQ(refusal_of(connection), "--tls-key " + connection.tls_key + ": is not the key of --tls-cert");
  connection.tls_key = folder.write("ours.key", ours.key);
  EXPECT_EQ(refusal_of(connection), "");
}

TEST(Failures, NameTheFlagThatSaysTheAddress) {
  Connection connection = connection_to("127.0.0.1:1");
  connection.address_flag = "--measure";
  EXPECT_THAT(failure_at(connection).text, HasSubstr("another address: --measure HOST:PORT"));
}

}  // namespace
}  // namespace folio::client
