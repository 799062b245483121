#include "server/toml_reader.h"

#include <algorithm>
#include <sstream>

#include "server/validation.h"

namespace folio {
namespace {

constexpr std::size_t kMaxBytes = 1U << 20U;
// Of one line: a key of more parts than the parser's recursion bears would have more.
constexpr std::ptrdiff_t kMaxDots = 1000;

}  // namespace

toml::table TomlReader::parse() const {
  const std::string text = read_operator_file(path_, flag_, kMaxBytes);
  std::istringstream lines(text);
  std::size_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (std::count(line.begin(), line.end(), '.') > kMaxDots) {
      fail(number, flag_ + ": a line with more than " + std::to_string(kMaxDots) + " dots");
    }
  }
  try {
    return toml::parse(text, path_);
  } catch (const toml::parse_error& error) {
    fail(error.source().begin.line, "not TOML: " + std::string(error.description()));
  }
}

void TomlReader::fail(std::size_t line, const std::string& message) const {
  throw ConfigError(path_, line, message);
}

void TomlReader::wrong_type(const std::string& key, const toml::node& node, std::string_view expected) const {
  fail(line_of(node), key + ": expected " + std::string(expected) + ", not " + std::string(type_of(node)));
}

void TomlReader::refuse_unknown_keys(const std::string& field, const toml::table& table,
                                     std::initializer_list<std::string_view> known) const {
  for (const auto& [key, node] : table) {
    if (std::find(known.begin(), known.end(), key.str()) != known.end()) continue;
    fail(key.source().begin.line, field + ": unknown key " + folio::quoted(key.str()));
  }
}

bool TomlReader::read_text(const std::string& field, const toml::table& table, const char* key,
                           std::string& out) const {
  const toml::node* const node = table.get(key);
  if (node == nullptr) return false;
  const auto* const text = node->as_string();
  if (text == nullptr) wrong_type(field + "." + key, *node, "a string");
  out = text->get();
  return true;
}

bool TomlReader::read_flag(const std::string& field, const toml::table& table, const char* key, bool& out) const {
  const toml::node* const node = table.get(key);
  if (node == nullptr) return false;
  const auto* const flag = node->as_boolean();
  if (flag == nullptr) wrong_type(field + "." + key, *node, "true or false");
  out = flag->get();
  return true;
}

std::string_view TomlReader::type_of(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "an array";
    case toml::node_type::string:
      return "a string";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "a boolean";
    default:
      return "a date or time";
  }
}

}  // namespace folio
