// Certificates made by a test for itself: an authority, and what it signs. PEM texts.
#pragma once
#include <string>

namespace folio::test {

struct Certified {
  std::string certificate;
  std::string key;
};

// A self-signed authority.
Certified make_authority(const std::string& name);
// For localhost and 127.0.0.1, for servers and clients; valid from `first_day` to `last_day`, counted from today.
Certified make_certified(const Certified& authority, const std::string& name, int first_day = -1, int last_day = 1);
std::string encrypted(const std::string& key, const std::string& pass_phrase);

}  // namespace folio::test
