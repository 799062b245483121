// The certificate of the listeners (--tls-cert, --tls-key) and the authority whose clients alone are let in
// (--tls-client-ca), read and checked before a port is bound.
#pragma once
#include <optional>
#include <string>

namespace folio {

// PEM texts.
struct TlsFiles {
  std::string certificate;  // the server's, then those between it and its authority
  std::string key;          // of the first; never logged
  std::string client_ca;    // empty: clients need no certificate
};

// Nothing without a certificate. Throws ConfigError naming the file and the flag: it cannot be read, holds no
// certificate or key, wants a pass phrase, or the key is not the certificate's. Warns in the log of a certificate that
// is not valid now.
std::optional<TlsFiles> read_tls_files(const std::string& certificate, const std::string& key,
                                       const std::string& client_ca);

}  // namespace folio
