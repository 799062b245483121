#include "server/config_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include "engine/options.h"
#include "engine/text/detokenizer.h"
#include "server/toml_reader.h"
#include "server/validation.h"

namespace folio {
namespace {

class Reader : private TomlReader {
 public:
  explicit Reader(const std::string& path) : TomlReader(path, "config") { out_.path = path; }

  ConfigFile read() {
    const toml::table root = parse();
    for (const auto& [key, node] : root) {
      const std::string name(key.str());
      if (name == "tenants") {
        read_tenants(node);
      } else if (name == "pin") {
        read_pins(node);
      } else {
        read_setting(name, key.source().begin.line, node);
      }
    }
    const auto by_line = [](const ConfigSetting& a, const ConfigSetting& b) { return a.line < b.line; };
    std::stable_sort(out_.settings.begin(), out_.settings.end(), by_line);
    return std::move(out_);
  }

 private:
  void read_setting(const std::string& key, std::size_t line, const toml::node& node) {
    ConfigSetting setting{key, false, line};
    if (const auto flag = node.value_exact<bool>()) {
      setting.value = *flag;
    } else if (const auto integer = node.value_exact<std::int64_t>()) {
      setting.value = *integer;
    } else if (const auto number = node.value_exact<double>()) {
      setting.value = *number;
    } else if (auto text = node.value_exact<std::string>()) {
      if (text->find('\0') != std::string::npos) fail(line_of(node), key + ": a NUL byte in it");
      setting.value = std::move(*text);
    } else {
      const bool is_table = node.is_table() || node.is_array_of_tables();
      fail(line_of(node), key + ": expected one value, not " + std::string(type_of(node)) +
                              (is_table ? "; tables are [tenants.NAME] and [[pin]]" : ""));
    }
    out_.settings.push_back(std::move(setting));
  }

  void read_tenants(const toml::node& node) {
    const toml::table* const tenants = node.as_table();
    if (tenants == nullptr) wrong_type("tenants", node, "a table of tenants");
    for (const auto& [key, entry] : *tenants) {
      const std::string name(key.str());
      const std::string field = "tenants." + folio::quoted(name);
      if (name.size() > kMaxTenantBytes) {
        fail(key.source().begin.line, field + ": a name has at most " + std::to_string(kMaxTenantBytes) + " bytes");
      }
      const toml::table* const tenant = entry.as_table();
      if (tenant == nullptr) wrong_type(field, entry, "a table with weight");
      refuse_unknown_keys(field, *tenant, {"weight"});
      const toml::node* const weight = tenant->get("weight");
      if (weight == nullptr) fail(key.source().begin.line, field + ": weight is missing");
      out_.tenant_weights[name] = read_weight(field + ".weight", *weight);
    }
  }

  double read_weight(const std::string& field, const toml::node& node) const {
    if (!node.is_number()) wrong_type(field, node, "a number");
    const double weight =
        node.is_integer() ? static_cast<double>(node.as_integer()->get()) : node.as_floating_point()->get();
    if (!(weight >= EngineOptions::kMinTenantWeight && weight <= EngineOptions::kMaxTenantWeight)) {
      std::ostringstream text;
      text << weight << " is not in [" << EngineOptions::kMinTenantWeight << ", " << EngineOptions::kMaxTenantWeight
           << "]";
      fail(line_of(node), field + ": " + text.str());
    }
    return weight;
  }

  void read_pins(const toml::node& node) {
    const toml::array* const pins = node.as_array();
    if (pins == nullptr) wrong_type("pin", node, "tables, each begun by [[pin]]");
    for (const toml::node& entry : *pins) {
      const toml::table* const pin = entry.as_table();
      if (pin == nullptr) wrong_type("pin", entry, "tables, each begun by [[pin]]");
      read_pin(*pin);
    }
  }

  void read_pin(const toml::table& table) {
    refuse_unknown_keys("pin", table, {"text", "system", "salt", "tenant", "ms"});
    PinnedPrefix pin;
    pin.where = sanitize_utf8(place(out_.path, line_of(table))) + ": pin";
    const bool has_text = read_text("pin", table, "text", pin.text);
    const bool has_system = read_text("pin", table, "system", pin.system);
    if (has_text == has_system) fail(line_of(table), "pin: exactly one of text and system is needed");
    for (const auto& [key, value] : {std::pair("text", &pin.text), std::pair("system", &pin.system)}) {
      if (table.contains(key) && value->empty()) fail(line_of(*table.get(key)), std::string("pin.") + key + ": empty");
    }
    if (read_text("pin", table, "salt", pin.salt) && pin.salt.size() > kMaxSaltBytes) {
      fail(line_of(*table.get("salt")), "pin.salt: " + std::to_string(pin.salt.size()) + " bytes, at most " +
                                            std::to_string(kMaxSaltBytes) + " are taken");
    }
    if (std::string tenant; read_text("pin", table, "tenant", tenant)) {
      if (tenant.size() > kMaxTenantBytes) {
        fail(line_of(*table.get("tenant")), "pin.tenant: " + std::to_string(tenant.size()) + " bytes, at most " +
                                                std::to_string(kMaxTenantBytes) + " are taken");
      }
      pin.tenant = std::move(tenant);
    }
    if (const toml::node* const ms = table.get("ms")) {
      const auto value = ms->value_exact<std::int64_t>();
      constexpr std::int64_t kMaxMs = std::numeric_limits<std::uint32_t>::max();
      if (!value) wrong_type("pin.ms", *ms, "an integer");
      if (*value < 1 || *value > kMaxMs) {
        fail(line_of(*ms), "pin.ms: " + std::to_string(*value) + " is not in [1, " + std::to_string(kMaxMs) +
                               "]; leave it out for ever");
      }
      pin.ms = *value;
    }
    out_.pins.push_back(std::move(pin));
  }

  ConfigFile out_;
};

// The flag as it is written on the command line; none for what only a command line can ask (--help, --config itself).
CLI::Option* find_option(CLI::App& app, const std::string& key) {
  if (key == "help" || key == "version") return nullptr;
  return key.empty() ? nullptr : app.get_option_no_throw("--" + key);
}

// What the option's type name says that it takes: the value as a command line would spell it, or what is expected.
std::optional<std::string> spelled(const CLI::Option& option, const ConfigSetting& setting, std::string& expected) {
  const std::string type = option.get_items_expected_max() == 0 ? "FLAG" : option.get_type_name();
  const auto takes = [&type](std::string_view name) { return std::string_view(type).starts_with(name); };
  expected = takes("FLAG")    ? "true or false"
             : takes("INT")   ? "an integer"
             : takes("FLOAT") ? "a number"
             : takes("SIZE")  ? "a string as \"2GiB\", or an integer of bytes"
                              : "a string";
  if (const auto* flag = std::get_if<bool>(&setting.value)) {
    if (takes("FLAG")) return *flag ? "true" : "false";
  } else if (const auto* integer = std::get_if<std::int64_t>(&setting.value)) {
    if (takes("INT") || takes("FLOAT") || takes("SIZE")) return std::to_string(*integer);
  } else if (const auto* number = std::get_if<double>(&setting.value)) {
    if (takes("FLOAT")) {
      std::ostringstream text;
      text.precision(std::numeric_limits<double>::max_digits10);
      text << *number;
      return text.str();
    }
  } else if (!takes("FLAG") && !takes("INT") && !takes("FLOAT")) {
    return std::get<std::string>(setting.value);
  }
  return std::nullopt;
}

}  // namespace

ConfigFile read_config_file(const std::string& path) {
  return Reader(path).read();
}

void apply_settings(const ConfigFile& file, CLI::App& app) {
  for (const ConfigSetting& setting : file.settings) {
    const auto fail = [&](const std::string& what) { throw ConfigError(file.path, setting.line, what); };
    if (setting.key == "config") fail("config: a file cannot name another");
    CLI::Option* const option = find_option(app, setting.key);
    if (option == nullptr)
      fail("unknown key " + folio::quoted(setting.key) + ": the keys are the flags' names, tenants and pin");
    std::string expected;
    const auto value = spelled(*option, setting, expected);
    if (!value) fail(setting.key + ": expected " + expected);
    for (const CLI::Option* other : option->get_excludes()) {
      if (other->count() > 0) fail(setting.key + ": not together with " + other->get_name().substr(2));
    }
    try {
      option->add_result(*value);
      option->run_callback();
    } catch (const CLI::ParseError& error) {
      const std::string_view what = error.what();
      fail(std::string(what.substr(what.starts_with("--") ? 2 : 0)));
    }
  }
}

}  // namespace folio
