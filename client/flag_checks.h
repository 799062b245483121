// Checks of what stands on the command line.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "client/text.h"

namespace folio::client {

// As CLI::Range, which lets "nan" pass.
inline CLI::Validator number_in(double least, double most) {
  char words[80];
  std::snprintf(words, sizeof words, "FLOAT in [%.12g - %.12g]", least, most);
  return CLI::Validator(
      [least, most, words = std::string(words)](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == '\0' && value >= least && value <= most) return "";
        return "Value " + text + " not in range " + words;
      },
      words);
}

// What is wrong with the program's first word, if it is no command and no option; else "". The parser itself only says
// that a command is wanted.
inline std::string wrong_command(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || *argv[1] == '-') return "";
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_name() == argv[1]) return "";
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return "'" + printable(repaired(argv[1])) + "' is no command; there are " + names + ", and --help";
}

// For unsigned numbers: the parser would take -1 for the largest.
inline CLI::Validator not_negative() {
  return CLI::Validator(
      [](std::string& text) { return text.starts_with('-') ? "Value " + text + " is below 0" : std::string(); }, "");
}

// For text that goes into a message.
inline CLI::Validator utf8() {
  return CLI::Validator(
      [](std::string& text) {
        const auto bad = first_bad_byte(text);
        return bad ? "not UTF-8 at byte " + std::to_string(*bad) : std::string();
      },
      "");
}

}  // namespace folio::client
