// Who may ask: keys, other sites' pages, TLS.
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include "tests/server/certificates.h"
#include "tests/server/http/http_fixture.h"
#include "tests/support/temp_folder.h"

namespace folio::test {
namespace {

using ::testing::HasSubstr;

class HttpDoors : public HttpTest {
 protected:
  void with_key() {
    options_.authorize = [](const std::vector<std::string_view>& authorization) -> Result<Caller> {
      Caller caller;
      caller.tenant = "mine";
      caller.highest_priority = 0;
      if (authorization.size() == 1 && authorization.front() == "Bearer secret") return caller;
      return Error{ErrorCode::kUnauthenticated, "a key is wanted"};
    };
  }
};

// A09: every path and method but the public ones.
TEST_F(HttpDoors, WithoutAKeyNothingButHealth) {
  with_key();
  serve();
  const std::string requests[] = {
      post("/v1/completions", completion()),
      post("/v1/chat/completions", "{}"),
      get("/v1/models"),
      get("/v1/models/x"),
      post("/tokenize", "{}"),
      post("/detokenize", "{}"),
      get("/metrics"),
      get("/"),
      get("//v1/completions"),
      get("/v1/completions/"),
      get("/V1/models"),
      get("/%761/models"),
      get("/v1/../v1/models"),
      get("/health/../v1/models"),
      get("/no/path"),
      get("/v1/models", "", "PUT"),
      get("/health/"),
  };
  for (const std::string& request : requests) {
    const RawResponse response = ask(request);
    EXPECT_EQ(response.status, 401) << request;
    EXPECT_EQ(response.fields.at("www-authenticate"), "Bearer");
    EXPECT_EQ(error_of(response)["code"], "invalid_api_key");
  }
  EXPECT_EQ(ask(get("/v1/models", "", "HEAD"), false).status, 401);
  EXPECT_EQ(ask(get("/health")).status, 200);
  EXPECT_EQ(ask(get("/ready")).status, 200);
  EXPECT_EQ(ask(get("/v1/models", "", "OPTIONS")).status, 204);
}

TEST_F(HttpDoors, KeysInEveryForm) {
  with_key();
  serve();
  const auto status = [this](const std::string& fields) { return ask(get("/v1/models", fields)).status; };
  EXPECT_EQ(status("Authorization: Bearer secret\r\n"), 200);
  for (const char* bad :
       {"Bearer", "Bearer ", "Bearer wrong", "Bearer secretx", "Bearer secre", "Basic secret", "secret"}) {
    EXPECT_EQ(status("Authorization: " + std::string(bad) + "\r\n"), 401) << bad;
  }
  EXPECT_EQ(status("Authorization: Bearer secret\r\nAuthorization: Bearer secret\r\n"), 401);
  EXPECT_EQ(status("X-Api-Key: secret\r\n"), 401);
}

TEST_F(HttpDoors, WhatAKeyDoesNotAllow) {
  with_key();
  serve();
  const auto ask_for = [this](const std::string& more) {
    return ask(post("/v1/completions", completion(more), "Authorization: Bearer secret\r\n"));
  };
  EXPECT_EQ(ask_for(R"(,"tenant": "mine", "priority": 0)").status, 200);
  const RawResponse other = ask_for(R"(,"tenant": "other")");
  EXPECT_EQ(other.status, 403);
  EXPECT_EQ(error_of(other)["param"], "tenant");
  EXPECT_EQ(error_of(ask_for(R"(,"priority": 1)"))["param"], "priority");
}

TEST_F(HttpDoors, CorsIsOffByDefault) {
  serve();
  const std::string origin = "Origin: https://app.example\r\n";
  for (const RawResponse& response :
       {ask(get("/health", origin)),
        ask(get("/v1/completions", origin + "Access-Control-Request-Method: POST\r\n", "OPTIONS"))}) {
    for (const auto& [name, value] : response.fields) EXPECT_FALSE(name.starts_with("access-control-")) << name;
  }
}

TEST_F(HttpDoors, CorsForOneOrigin) {
  with_key();
  options_.cors_allow_origin = "https://app.example";
  serve();
  const std::string origin = "Origin: https://app.example\r\n";
  const RawResponse preflight = ask(get(
      "/v1/completions",
      origin + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n", "OPTIONS"));
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.fields.at("access-control-allow-origin"), "https://app.example");
  EXPECT_THAT(preflight.fields.at("access-control-allow-headers"), HasSubstr("Authorization"));
  EXPECT_THAT(preflight.fields.at("access-control-allow-methods"), HasSubstr("POST"));
  const RawResponse refused = ask(post("/v1/completions", completion(), origin));
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.fields.at("access-control-allow-origin"), "https://app.example");
  const RawResponse stream =
      ask(post("/v1/completions", completion(R"(,"stream": true)"), origin + "Authorization: Bearer secret\r\n"));
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.fields.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(stream.fields.at("vary"), "Origin");
  const RawResponse other = ask(get("/health", "Origin: https://evil.example\r\n"));
  EXPECT_FALSE(other.fields.contains("access-control-allow-origin"));
  EXPECT_EQ(other.fields.at("vary"), "Origin");
}

TEST_F(HttpDoors, CorsForEverybody) {
  options_.cors_allow_origin = "*";
  serve();
  EXPECT_EQ(ask(get("/health", "Origin: null\r\n")).fields.at("access-control-allow-origin"), "*");
  EXPECT_FALSE(ask(get("/health")).fields.contains("access-control-allow-origin"));
}

class HttpTlsDoors : public HttpDoors {
 protected:
  void SetUp() override {
    const Certified authority = make_authority("test authority");
    const Certified server = make_certified(authority, "localhost");
    const Certified client = make_certified(authority, "client");
    authority_ = folder_.write("authority.pem", authority.certificate);
    client_cert_ = folder_.write("client.pem", client.certificate);
    client_key_ = folder_.write("client.key", client.key);
    options_.tls = TlsFiles{server.certificate, server.key, ""};
  }
  // What a server answers through TLS; empty when there was no handshake. `with_cert`: the client shows one. `reads`:
  // it does not leave when it has asked.
  std::string ask_tls(const std::string& request, bool with_cert = false, bool reads = true) {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_load_verify_locations(context, authority_.c_str(), nullptr);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (with_cert) {
      SSL_CTX_use_certificate_file(context, client_cert_.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context, client_key_.c_str(), SSL_FILETYPE_PEM);
    }
    BIO* bio = BIO_new_ssl_connect(context);
    BIO_set_conn_hostname(bio, ("127.0.0.1:" + std::to_string(port())).c_str());
    std::string out;
    if (BIO_do_connect(bio) == 1 && BIO_write(bio, request.data(), static_cast<int>(request.size())) > 0) {
      char bytes[4096];
      int count = 0;
      while (reads && (count = BIO_read(bio, bytes, sizeof bytes)) > 0) {
        out.append(bytes, static_cast<std::size_t>(count));
        if (out.find("\r\n\r\n0\r\n\r\n") != std::string::npos || out.ends_with("0\r\n\r\n")) break;
      }
    }
    BIO_free_all(bio);
    SSL_CTX_free(context);
    return out;
  }

  folio::testing::TempFolder folder_;
  std::string authority_;
  std::string client_cert_;
  std::string client_key_;
};

TEST_F(HttpTlsDoors, AnswersAndStreams) {
  serve();
  EXPECT_THAT(ask_tls(get("/health", "Connection: close\r\n")), HasSubstr(R"({"status":"ok"})"));
  const std::string stream =
      ask_tls(post("/v1/completions", completion(R"(,"max_tokens": 20, "stream": true)"), "Connection: close\r\n"));
  EXPECT_THAT(stream, HasSubstr("data: [DONE]"));
  // A client that speaks in the clear gets nothing, and harms nobody.
  EXPECT_EQ(ask(get("/health")).status, 0);
  EXPECT_THAT(ask_tls(get("/health", "Connection: close\r\n")), HasSubstr("200 OK"));
}

TEST_F(HttpTlsDoors, AClientThatGoesEndsItsRequest) {
  serve();
  model_.hold();
  ask_tls(post("/v1/completions", completion(R"(,"max_tokens": 500)")), false, false);
  EXPECT_TRUE(eventually([this] {
    model_.allow(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return idle();
  }));
  EXPECT_LT(engine_.load().output_tokens, 200);
}

TEST_F(HttpTlsDoors, ClientsCertificates) {
  options_.tls->client_ca = make_authority("another").certificate;
  options_.tls->client_ca += folio::testing::read_file(authority_);
  serve();
  EXPECT_EQ(ask_tls(get("/health", "Connection: close\r\n")), "");
  EXPECT_THAT(ask_tls(get("/health", "Connection: close\r\n"), true), HasSubstr("200 OK"));
}

}  // namespace
}  // namespace folio::test
