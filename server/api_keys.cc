#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "base/log.h"
#include "server/toml_reader.h"
#include "server/validation.h"

namespace folio {
namespace {

using Digest = std::array<unsigned char, SHA256_DIGEST_LENGTH>;

Digest sha256(std::string_view bytes) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  return digest;
}

std::optional<unsigned char> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned char>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned char>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned char>(c - 'A' + 10);
  return std::nullopt;
}

std::optional<Digest> parse_digest(std::string_view hex) {
  Digest digest{};
  if (hex.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const auto high = hex_digit(hex[2 * i]);
    const auto low = hex_digit(hex[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    digest[i] = static_cast<unsigned char>(*high << 4U | *low);
  }
  return digest;
}

const Error kNoKey{ErrorCode::kUnauthenticated, "authorization: an API key is needed: Bearer KEY"};
const Error kUnknownKey{ErrorCode::kUnauthenticated, "authorization: the API key is not known"};

bool starts_with_bearer(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  return header.size() >= kScheme.size() &&
         std::equal(kScheme.begin(), kScheme.end(), header.begin(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? static_cast<char>(b - 'A' + 'a') : b); });
}

struct ReadKey {
  Digest digest{};
  Caller caller;
};

class KeyReader : private TomlReader {
 public:
  explicit KeyReader(const std::string& path) : TomlReader(path, "api-key-file") {}

  std::vector<ReadKey> read() {
    const toml::table root = parse();
    for (const auto& [key, node] : root) {
      if (key.str() != "keys") {
        fail(key.source().begin.line, "unknown key " + folio::quoted(key.str()) + ": keys are in tables [keys.NAME]");
      }
    }
    const toml::node* const keys = root.get("keys");
    if (keys == nullptr) fail(0, "api-key-file: no [keys.NAME] in it: nobody could call");
    if (!keys->is_table()) wrong_type("keys", *keys, "tables [keys.NAME]");
    if (keys->as_table()->size() > ApiKeys::kMaxKeys) {
      fail(0, "api-key-file: " + std::to_string(keys->as_table()->size()) + " keys, at most " +
                  std::to_string(ApiKeys::kMaxKeys) + " are taken");
    }
    if (keys->as_table()->empty()) fail(line_of(*keys), "keys: empty: nobody could call");
    for (const auto& [key, node] : *keys->as_table()) {
      read_key(std::string(key.str()), key.source().begin.line, node);
    }
    return std::move(out_);
  }

 private:
  void read_key(const std::string& name, std::size_t line, const toml::node& node) {
    const std::string field = "keys." + folio::quoted(name);
    const toml::table* const table = node.as_table();
    if (table == nullptr) wrong_type(field, node, "a table with sha256");
    if (name.size() > kMaxTenantBytes) {
      fail(line, field + ": a name has at most " + std::to_string(kMaxTenantBytes) + " bytes");
    }
    refuse_unknown_keys(field, *table, {"sha256", "tenant", "highest_priority", "admin", "share_prefix"});
    ReadKey key;
    key.digest = read_digest(field, line, *table);
    key.caller.tenant = read_tenant(field, *table, name);
    key.caller.highest_priority = read_priority(field, *table);
    key.caller.admin = false;
    key.caller.share_prefix = false;
    read_flag(field, *table, "admin", key.caller.admin);
    read_flag(field, *table, "share_prefix", key.caller.share_prefix);
    out_.push_back(std::move(key));
  }

  Digest read_digest(const std::string& field, std::size_t line, const toml::table& table) {
    std::string hex;
    if (!read_text(field, table, "sha256", hex)) fail(line, field + ": sha256 is missing");
    const std::size_t at = line_of(*table.get("sha256"));
    // What stands there instead may be a key in clear: it is not repeated.
    const auto digest = parse_digest(hex);
    if (!digest) fail(at, field + ".sha256: is not 64 hexadecimal digits: printf %s KEY | sha256sum");
    if (*digest == sha256("")) fail(at, field + ".sha256: is the hash of an empty key");
    const auto [same, is_new] = lines_.emplace(*digest, at);
    if (!is_new) fail(at, field + ".sha256: the same key as in line " + std::to_string(same->second));
    return *digest;
  }

  std::string read_tenant(const std::string& field, const toml::table& table, const std::string& name) const {
    std::string tenant = name;
    if (read_text(field, table, "tenant", tenant) && tenant.size() > kMaxTenantBytes) {
      fail(line_of(*table.get("tenant")), field + ".tenant: " + std::to_string(tenant.size()) + " bytes, at most " +
                                              std::to_string(kMaxTenantBytes) + " are taken");
    }
    return tenant;
  }

  std::int32_t read_priority(const std::string& field, const toml::table& table) const {
    const toml::node* const node = table.get("highest_priority");
    if (node == nullptr) return 0;
    const auto value = node->value_exact<std::int64_t>();
    if (!value) wrong_type(field + ".highest_priority", *node, "an integer");
    using Limits = std::numeric_limits<std::int32_t>;
    if (*value < Limits::min() || *value > Limits::max()) {
      fail(line_of(*node), field + ".highest_priority: " + std::to_string(*value) + " is not a 32-bit number");
    }
    return static_cast<std::int32_t>(*value);
  }

  std::vector<ReadKey> out_;
  std::map<Digest, std::size_t> lines_;  // where each hash stands
};

}  // namespace

struct ApiKeys::Key {
  Digest digest{};
  Caller caller;
};

ApiKeys::Table ApiKeys::read(const std::string& path) {
  Table table;
  for (ReadKey& key : KeyReader(path).read()) table.push_back({key.digest, std::move(key.caller)});
  return table;
}

ApiKeys::ApiKeys(const std::string& path)
    : path_(path), table_(path.empty() ? nullptr : std::make_shared<const Table>(read(path))) {}

std::shared_ptr<const ApiKeys::Table> ApiKeys::table() const {
  const std::lock_guard lock(mutex_);
  return table_;
}

std::size_t ApiKeys::size() const {
  return required() ? table()->size() : 0;
}

void ApiKeys::reload() {
  if (!required()) return;
  try {
    auto fresh = std::make_shared<const Table>(read(path_));
    const std::size_t count = fresh->size();
    {
      const std::lock_guard lock(mutex_);
      table_ = std::move(fresh);
    }
    log::info(path_ + ": " + std::to_string(count) + " API keys");
  } catch (const std::exception& failure) {
    log::error(std::string(failure.what()) + "; the API keys stay as they were");
  }
}

Result<Caller> ApiKeys::find(std::string_view bearer) const {
  if (!required()) return Caller{};
  if (bearer.empty()) return kNoKey;
  if (bearer.size() > kMaxKeyBytes) return kUnknownKey;
  const Digest digest = sha256(bearer);
  const auto keys = table();
  const Key* found = nullptr;
  // All of them, whichever it is.
  for (const Key& key : *keys) {
    if (CRYPTO_memcmp(key.digest.data(), digest.data(), digest.size()) == 0) found = &key;
  }
  if (found == nullptr) return kUnknownKey;
  return found->caller;
}

Result<Caller> ApiKeys::authorize(const std::vector<std::string_view>& headers) const {
  if (!required()) return Caller{};
  if (headers.size() != 1 || !starts_with_bearer(headers[0])) return kNoKey;
  return find(headers[0].substr(std::string_view("bearer ").size()));
}

}  // namespace folio
