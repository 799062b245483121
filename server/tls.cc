#include "server/tls.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <vector>

#include "base/log.h"
#include "server/config_error.h"

namespace folio {
namespace {

constexpr std::size_t kMaxPemBytes = 1U << 20U;

struct Freer {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <class T>
using Owned = std::unique_ptr<T, Freer>;

Owned<BIO> reader_of(const std::string& pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Instead of asking at the terminal: there is nobody.
int no_pass_phrase(char*, int, int, void* asked) {
  *static_cast<bool*>(asked) = true;
  return -1;
}

std::vector<Owned<X509>> read_certificates(const std::string& path, const std::string& flag, const std::string& pem) {
  const Owned<BIO> bio = reader_of(pem);
  std::vector<Owned<X509>> out;
  while (X509* const certificate = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    out.emplace_back(certificate);
  }
  const unsigned long failure = ERR_peek_last_error();
  ERR_clear_error();
  if (out.empty() || ERR_GET_REASON(failure) != PEM_R_NO_START_LINE) {
    throw ConfigError(path, 0,
                      flag + ": " +
                          (out.empty() ? std::string("holds no PEM certificate")
                                       : "certificate " + std::to_string(out.size() + 1) + " is broken"));
  }
  return out;
}

Owned<EVP_PKEY> read_key(const std::string& path, const std::string& pem) {
  const Owned<BIO> bio = reader_of(pem);
  bool asked = false;
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_pass_phrase, &asked));
  ERR_clear_error();
  if (asked) throw ConfigError(path, 0, "tls-key: wants a pass phrase, and there is nobody to ask");
  if (!key) throw ConfigError(path, 0, "tls-key: holds no PEM private key");
  return key;
}

void warn_unless_valid_now(const std::string& path, const X509& certificate) {
  if (X509_cmp_current_time(X509_get0_notBefore(&certificate)) > 0) {
    log::warn(path + ": tls-cert: the certificate is not valid yet");
  }
  if (X509_cmp_current_time(X509_get0_notAfter(&certificate)) < 0) {
    log::warn(path + ": tls-cert: the certificate has expired");
  }
}

}  // namespace

std::optional<TlsFiles> read_tls_files(const std::string& certificate, const std::string& key,
                                       const std::string& client_ca) {
  if (certificate.empty()) return std::nullopt;
  TlsFiles files;
  files.certificate = read_operator_file(certificate, "tls-cert", kMaxPemBytes);
  const auto chain = read_certificates(certificate, "tls-cert", files.certificate);
  files.key = read_operator_file(key, "tls-key", kMaxPemBytes);
  const Owned<EVP_PKEY> private_key = read_key(key, files.key);
  if (X509_check_private_key(chain.front().get(), private_key.get()) != 1) {
    ERR_clear_error();
    throw ConfigError(key, 0, "tls-key: is not the key of the first certificate in " + certificate);
  }
  warn_unless_valid_now(certificate, *chain.front());
  if (!client_ca.empty()) {
    files.client_ca = read_operator_file(client_ca, "tls-client-ca", kMaxPemBytes);
    read_certificates(client_ca, "tls-client-ca", files.client_ca);
  }
  return files;
}

}  // namespace folio
