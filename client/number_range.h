// A check for numbers from the command line.
#pragma once
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace folio::client {

// As CLI::Range, which lets "nan" pass.
inline CLI::Validator number_in(double least, double most) {
  char words[80];
  std::snprintf(words, sizeof words, "FLOAT in [%g - %g]", least, most);
  return CLI::Validator(
      [least, most, words = std::string(words)](std::string& text) -> std::string {
        char* end = nullptr;
        const double value = std::strtod(text.c_str(), &end);
        if (!text.empty() && *end == '\0' && value >= least && value <= most) return "";
        return "Value " + text + " not in range " + words;
      },
      words);
}

}  // namespace folio::client
