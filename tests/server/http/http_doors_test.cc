// Who may ask: keys, other sites' pages, TLS.
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "tests/server/http/http_fixture.h"
#include "tests/support/temp_folder.h"

namespace folio::test {
namespace {

using ::testing::HasSubstr;

class HttpDoors : public HttpTest {
 protected:
  void with_key() {
    options_.authorize = [](std::string_view authorization) -> Result<Caller> {
      if (authorization == "Bearer secret") return Caller();
      return Error{ErrorCode::kInvalidArgument, "a key is wanted"};
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

// A certificate that signs itself, as two files.
void make_certificate(const std::string& cert_file, const std::string& key_file) {
  EVP_PKEY* key = EVP_PKEY_Q_keygen(nullptr, nullptr, "EC", "P-256");
  X509* cert = X509_new();
  X509_set_version(cert, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
  X509_gmtime_adj(X509_getm_notBefore(cert), -60);
  X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
  X509_set_pubkey(cert, key);
  X509_NAME* name = X509_get_subject_name(cert);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(cert, name);
  X509_sign(cert, key, EVP_sha256());
  BIO* out = BIO_new_file(cert_file.c_str(), "w");
  PEM_write_bio_X509(out, cert);
  BIO_free(out);
  out = BIO_new_file(key_file.c_str(), "w");
  PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
  BIO_free(out);
  X509_free(cert);
  EVP_PKEY_free(key);
}

class HttpTlsDoors : public HttpDoors {
 protected:
  void SetUp() override {
    cert_ = folder_.path("cert.pem");
    key_ = folder_.path("key.pem");
    make_certificate(cert_, key_);
    options_.tls = HttpTls{cert_, key_, ""};
  }
  // What a server answers through TLS; empty when there was no handshake. `with_cert`: the client shows one. `reads`:
  // it does not leave when it has asked.
  std::string ask_tls(const std::string& request, bool with_cert = false, bool reads = true) {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_load_verify_locations(context, cert_.c_str(), nullptr);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    if (with_cert) {
      SSL_CTX_use_certificate_file(context, cert_.c_str(), SSL_FILETYPE_PEM);
      SSL_CTX_use_PrivateKey_file(context, key_.c_str(), SSL_FILETYPE_PEM);
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
  std::string cert_;
  std::string key_;
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
  options_.tls->client_ca_file = cert_;
  serve();
  EXPECT_EQ(ask_tls(get("/health", "Connection: close\r\n")), "");
  EXPECT_THAT(ask_tls(get("/health", "Connection: close\r\n"), true), HasSubstr("200 OK"));
}

TEST_F(HttpTlsDoors, BadFilesAreNamed) {
  const auto refusal = [this](const HttpTls& tls) -> std::string {
    HttpOptions options;
    options.tls = tls;
    try {
      const HttpListener listener(options);
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "";
  };
  const std::string text = folder_.write("text", "no certificate");
  EXPECT_THAT(refusal({text, key_, ""}), HasSubstr(text + ": not usable as the certificate"));
  EXPECT_THAT(refusal({cert_, text, ""}), HasSubstr(text + ": not usable as its private key"));
  EXPECT_THAT(refusal({"/no/such.pem", key_, ""}), HasSubstr("/no/such.pem"));
  EXPECT_THAT(refusal({cert_, key_, text}), HasSubstr(text + ": not usable as the clients' authority"));
}

}  // namespace
}  // namespace folio::test
