// The configuration file (--config): TOML, the flags' names as keys, and what is too long for a command line: the
// tenants' weights and the prefixes that are pinned at start. Read once, before anything is opened.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/params.h"
#include "server/config_error.h"

namespace CLI {
class App;
}  // namespace CLI

namespace folio {

// A [[pin]] entry. Exactly one of text and system is set.
struct PinnedPrefix {
  std::string text;    // the beginning of raw prompts; spellings of control tokens are those tokens
  std::string system;  // the system message of chats
  std::string salt;
  std::optional<std::string> tenant =
      std::nullopt;  // whose keys find it alone; not set: callers without a key or that share_prefix
  std::int64_t ms = CacheParams::kPinForever;
  std::string where;  // "FILE:12: pin", for messages
};

// A key of the file's top level.
struct ConfigSetting {
  std::string key;
  std::variant<bool, std::int64_t, double, std::string> value;
  std::size_t line = 0;
};

struct ConfigFile {
  std::string path;
  std::vector<ConfigSetting> settings;           // in the file's order
  std::map<std::string, double> tenant_weights;  // within the range of EngineOptions
  std::vector<PinnedPrefix> pins;
};

// Throws ConfigError: no such file, not TOML, and everything about tenants and pins. Of the settings only the form is
// checked: that each is a number, a string or a boolean.
ConfigFile read_config_file(const std::string& path);

// Gives the settings to the options of `app`, as a command line would: the options' own checks hold, and what they are
// bound to is written. Throws ConfigError for an unknown key, a wrong type, a bad value, and two that exclude each
// other.
void apply_settings(const ConfigFile& file, CLI::App& app);

}  // namespace folio
