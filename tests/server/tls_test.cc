#include "server/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/config_error.h"
#include "tests/server/certificates.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

using ::testing::HasSubstr;

class TlsTest : public ::testing::Test {
 protected:
  std::string failure(const std::string& certificate, const std::string& key, const std::string& client_ca = "") {
    try {
      read_tls_files(certificate, key, client_ca);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "taken";
  }

  testing::TempFolder folder_;
  const test::Certified authority_ = test::make_authority("an authority");
  const test::Certified server_ = test::make_certified(authority_, "server");
  const std::string certificate_ = folder_.write("cert.pem", server_.certificate);
  const std::string key_ = folder_.write("key.pem", server_.key);
  const std::string ca_ = folder_.write("ca.pem", authority_.certificate);
};

TEST_F(TlsTest, WithoutACertificateThereIsNone) {
  EXPECT_FALSE(read_tls_files("", "", ""));
}

TEST_F(TlsTest, TheFilesAreGivenAsTheyAre) {
  auto files = read_tls_files(certificate_, key_, "");
  ASSERT_TRUE(files);
  EXPECT_EQ(files->certificate, server_.certificate);
  EXPECT_EQ(files->key, server_.key);
  EXPECT_EQ(files->client_ca, "");
  const std::string chain = folder_.write("chain.pem", server_.certificate + authority_.certificate);
  files = read_tls_files(chain, key_, ca_);
  ASSERT_TRUE(files);
  EXPECT_EQ(files->certificate, server_.certificate + authority_.certificate);
  EXPECT_EQ(files->client_ca, authority_.certificate);
}

TEST_F(TlsTest, EveryErrorNamesTheFileAndTheFlag) {
  const std::string nowhere = folder_.path("nowhere.pem");
  const std::string text = folder_.write("text.pem", "not a certificate\n");
  const std::string broken = folder_.write(
      "broken.pem", server_.certificate + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
  const std::string locked = folder_.write("locked.pem", test::encrypted(server_.key, "secret"));
  const std::string other = folder_.write("other.pem", test::make_certified(authority_, "other").key);
  EXPECT_EQ(failure(nowhere, key_), nowhere + ": tls-cert: cannot be read: No such file or directory");
  EXPECT_EQ(failure("/tmp", key_), "/tmp: tls-cert: is not a file");
  EXPECT_EQ(failure(text, key_), text + ": tls-cert: holds no PEM certificate");
  EXPECT_EQ(failure(key_, key_), key_ + ": tls-cert: holds no PEM certificate");
  EXPECT_EQ(failure(broken, key_), broken + ": tls-cert: certificate 2 is broken");
  EXPECT_EQ(failure(certificate_, nowhere), nowhere + ": tls-key: cannot be read: No such file or directory");
  EXPECT_EQ(failure(certificate_, text), text + ": tls-key: holds no PEM private key");
  EXPECT_EQ(failure(certificate_, certificate_), certificate_ + ": tls-key: holds no PEM private key");
  EXPECT_EQ(failure(certificate_, locked), locked + ": tls-key: wants a pass phrase, and there is nobody to ask");
  EXPECT_EQ(failure(certificate_, other),
            other + ": tls-key: is not the key of the first certificate in " + certificate_);
  EXPECT_EQ(failure(certificate_, key_, nowhere),
            nowhere + ": tls-client-ca: cannot be read: No such file or directory");
  EXPECT_EQ(failure(certificate_, key_, text), text + ": tls-client-ca: holds no PEM certificate");
}

TEST_F(TlsTest, ACertificateOfAnotherTimeIsWarnedOf) {
  const struct {
    int first_day, last_day;
    const char* words;
  } cases[] = {{-9, -1, "the certificate has expired"}, {1, 9, "the certificate is not valid yet"}};
  for (const auto& c : cases) {
    const test::Certified server = test::make_certified(authority_, "server", c.first_day, c.last_day);
    const std::string certificate = folder_.write("dated.pem", server.certificate);
    const std::string key = folder_.write("dated_key.pem", server.key);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(read_tls_files(certificate, key, ""));
    EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr(certificate + ": tls-cert: " + c.words));
  }
}

}  // namespace
}  // namespace folio
