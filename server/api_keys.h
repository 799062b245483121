// Who may call: API keys from the operator's file (--api-key-file), which has no key in it but their hashes.
//
//   [keys.alice]                       # a name for messages to the operator
//   sha256 = "9f86d081884c7d65..."     # printf %s KEY | sha256sum
//   tenant = "gold"                    # default: the name above
//   highest_priority = 10              # default: 0
//   admin = true                       # may use the Control service; default: false
//   share_prefix = true                # default: false, the tenant's cached prefixes are its own
//
// At most kMaxKeys of them, in at most 1 MiB. Keys are random strings of enough length, so a plain hash hides them.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "server/caller.h"

namespace folio {

class ApiKeys {
 public:
  static constexpr std::size_t kMaxKeys = 4096;
  static constexpr std::size_t kMaxKeyBytes = 1024;  // of what a caller presents

  // An empty path: no keys are in use, everybody may do everything. Throws ConfigError naming file and line.
  explicit ApiKeys(const std::string& path = "");
  ApiKeys(const ApiKeys&) = delete;
  ApiKeys& operator=(const ApiKeys&) = delete;

  bool required() const { return !path_.empty(); }
  std::size_t size() const;

  // Any thread. Reads the file again; one that is wrong changes nothing. Logs what came of it. Who was let in before
  // stays.
  void reload();

  // Any thread. The caller whose key this is; kUnauthenticated, in words that never have a part of the key. Takes the
  // same time whichever key it is and however much of it is right.
  Result<Caller> find(std::string_view bearer) const;
  // From the values of all the `authorization` headers of a call: exactly one, "Bearer KEY", the scheme in any case.
  Result<Caller> authorize(const std::vector<std::string_view>& headers) const;

 private:
  struct Key;
  using Table = std::vector<Key>;
  static Table read(const std::string& path);
  std::shared_ptr<const Table> table() const;

  const std::string path_;  // empty: none in use
  mutable std::mutex mutex_;
  std::shared_ptr<const Table> table_;
};

}  // namespace folio
