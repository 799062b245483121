// The OpenAI-style wire against our own HTTP front.
#include <gtest/gtest.h>

#include "client/load_test/openai_transport.h"
#include "server/tls.h"
#include "tests/client/collected_answer.h"
#include "tests/server/certificates.h"
#include "tests/server/http/http_fixture.h"
#include "tests/support/temp_folder.h"

namespace folio::test {
namespace {

class OpenAiServer : public HttpTest {
 protected:
  client::Connection connection() const {
    client::Connection out;
    out.address = "127.0.0.1:" + std::to_string(port());
    return out;
  }
  static client::RequestSpec spec(std::int64_t max_tokens) {
    client::RequestSpec out;
    out.text = "a";
    out.max_tokens = max_tokens;
    out.temperature = 0;
    return out;
  }
};

TEST_F(OpenAiServer, TokensAreThoseThatTheServerCounts) {
  serve();
  const auto transport = make_openai_transport(connection(), 1);
  EXPECT_FALSE(transport->model().name.empty());
  EXPECT_GT(transport->model().max_context, 0);
  const std::int64_t before = engine_.load().output_tokens;
  for (int i = 0; i < 3; ++i) {
    const auto answer = collect(*transport, spec(9));
    EXPECT_EQ(answer->wait().error, "") << answer->wait().message;
    EXPECT_EQ(answer->wait().output_tokens, 9);
    EXPECT_EQ(answer->wait().prompt_tokens, 1);
    EXPECT_TRUE(answer->wait().cached_tokens.has_value());
    EXPECT_EQ(answer->text_bytes(), 9);
  }
  EXPECT_TRUE(eventually([&] { return engine_.load().output_tokens - before == 27; }));
  client::RequestSpec ids = spec(4);
  ids.prompt = transport->tokenize("ab");
  EXPECT_EQ(ids.prompt.size(), 2U);
  ids.n = 2;
  ids.seed = 7;
  ids.top_k = 3;
  ids.top_p = 0.5F;
  ids.temperature = 1;
  ids.tenant = "t";
  const auto answer = collect(*transport, ids);
  EXPECT_EQ(answer->wait().error, "") << answer->wait().message;
  EXPECT_EQ(answer->wait().output_tokens, 8);
}

TEST_F(OpenAiServer, RefusalsAndCancels) {
  serve();
  const auto transport = make_openai_transport(connection(), 1);
  client::RequestSpec bad = spec(4);
  bad.top_p = 2.0F;
  const auto refused = collect(*transport, bad);
  EXPECT_EQ(refused->wait().error, "HTTP 400");
  EXPECT_EQ(refused->wait().message, "top_p: 2 is not in (0, 1]");
  model_.hold();
  model_.allow(3);
  CollectedAnswer answer;
  const auto call = transport->start(spec(100), answer);
  answer.wait_for_arrivals(1);
  call->cancel();
  EXPECT_EQ(answer.wait().error, "CANCELLED");
  model_.release();
  EXPECT_TRUE(eventually([this] { return idle(); }));
}

TEST_F(OpenAiServer, ThroughTls) {
  const Certified authority = make_authority("authority");
  const Certified ours = make_certified(authority, "localhost");
  options_.tls = TlsFiles{ours.certificate, ours.key, ""};
  serve();
  const testing::TempFolder folder;
  client::Connection to = connection();
  to.tls_ca = folder.write("ca.pem", authority.certificate);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    to.address = host + (":" + std::to_string(port()));
    const auto transport = make_openai_transport(to, 2);
    for (int i = 0; i < 3; ++i) {
      const auto answer = collect(*transport, spec(5));
      EXPECT_EQ(answer->wait().error, "") << answer->wait().message;
      EXPECT_EQ(answer->wait().output_tokens, 5);
    }
  }
  to.tls_ca = folder.write("other.pem", make_authority("another").certificate);
  const auto stranger = make_openai_transport(to, 0);
  EXPECT_EQ(collect(*stranger, spec(5))->wait().error, "connection");
  const auto clear = make_openai_transport(connection(), 0);
  EXPECT_NE(collect(*clear, spec(5))->wait().error, "");
}

}  // namespace
}  // namespace folio::test
