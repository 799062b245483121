// folio-client completion bash: a script for the shell, made from the very description of the command line that parses
// it, so that the two cannot differ.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace folio::client {

// Completes commands (of any depth), options, the words of an option that takes one of a few, and files where an
// option's type name has FILE in it or an argument is wanted.
std::string bash_completion(const CLI::App& app);

}  // namespace folio::client
