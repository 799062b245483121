#include "tests/server/certificates.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <stdexcept>

namespace folio::test {
namespace {

struct Freer {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
template <class T>
using Owned = std::unique_ptr<T, Freer>;

void require(bool ok, const char* what) {
  if (!ok) throw std::runtime_error(std::string("certificate for a test: ") + what);
}

Owned<EVP_PKEY> new_key() {
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  require(key != nullptr, "key");
  return key;
}

Owned<X509> new_certificate(const std::string& name, EVP_PKEY* key, int first_day, int last_day) {
  static long serial = 1;
  constexpr long kDay = 24 * 3600;
  Owned<X509> certificate(X509_new());
  require(X509_set_version(certificate.get(), 2) == 1, "version");
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), ++serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), first_day * kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), last_day * kDay);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

void extend(X509* certificate, int id, const char* value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, id, value);
  require(extension != nullptr, value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

std::string pem_of(X509* certificate) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  require(PEM_write_bio_X509(bio.get(), certificate) == 1, "PEM");
  return text_of(bio.get());
}

std::string pem_of(EVP_PKEY* key, const std::string* pass_phrase = nullptr) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  const auto* phrase = pass_phrase == nullptr ? nullptr : reinterpret_cast<const unsigned char*>(pass_phrase->data());
  require(PEM_write_bio_PrivateKey(bio.get(), key, pass_phrase == nullptr ? nullptr : EVP_aes_256_cbc(), phrase,
                                   pass_phrase == nullptr ? 0 : static_cast<int>(pass_phrase->size()), nullptr,
                                   nullptr) == 1,
          "PEM key");
  return text_of(bio.get());
}

Owned<EVP_PKEY> key_of(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
  return Owned<EVP_PKEY>(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
}

}  // namespace

Certified make_authority(const std::string& name) {
  const auto key = new_key();
  const auto certificate = new_certificate(name, key.get(), -1, 1);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  extend(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  require(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "signature");
  return {pem_of(certificate.get()), pem_of(key.get())};
}

Certified make_certified(const Certified& authority, const std::string& name, int first_day, int last_day) {
  const auto key = new_key();
  const auto certificate = new_certificate(name, key.get(), first_day, last_day);
  const Owned<BIO> bio(BIO_new_mem_buf(authority.certificate.data(), static_cast<int>(authority.certificate.size())));
  const Owned<X509> issuer(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  extend(certificate.get(), NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
  require(X509_sign(certificate.get(), key_of(authority.key).get(), EVP_sha256()) > 0, "signature");
  return {pem_of(certificate.get()), pem_of(key.get())};
}

std::string encrypted(const std::string& key, const std::string& pass_phrase) {
  return pem_of(key_of(key).get(), &pass_phrase);
}

}  // namespace folio::test
