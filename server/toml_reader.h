// What the readers of our TOML files share: the text is bounded before it is parsed, and complaints name file and line.
#pragma once
#include <toml++/toml.h>

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>

#include "server/config_error.h"

namespace folio {

class TomlReader {
 public:
  // `flag`: the one that named the file, for messages about the whole of it.
  TomlReader(std::string path, std::string flag) : path_(std::move(path)), flag_(std::move(flag)) {}

  toml::table parse() const;  // throws ConfigError: no file, too large, not TOML
  const std::string& path() const { return path_; }

  [[noreturn]] void fail(std::size_t line, const std::string& message) const;
  [[noreturn]] void wrong_type(const std::string& key, const toml::node& node, std::string_view expected) const;
  void refuse_unknown_keys(const std::string& field, const toml::table& table,
                           std::initializer_list<std::string_view> known) const;
  // False when `key` is not there; `field` is its table's name in messages.
  bool read_text(const std::string& field, const toml::table& table, const char* key, std::string& out) const;
  bool read_flag(const std::string& field, const toml::table& table, const char* key, bool& out) const;

  static std::size_t line_of(const toml::node& node) { return node.source().begin.line; }
  static std::string_view type_of(const toml::node& node);

 private:
  const std::string path_;
  const std::string flag_;
};

}  // namespace folio
