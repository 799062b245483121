#include "client/completion.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

namespace folio::client {
namespace {

struct Command {
  std::string path;         // "/bench/sweep"; of the program itself ""
  std::string words;        // commands and options
  std::string values;       // cases: an option and what may stand behind it
  bool takes_file = false;  // as an argument: words that begin with no "-" are files, which are bash's default
};

// As a shell function's name.
std::string function_name(const std::string& program) {
  std::string out = "_";
  for (const char c : program) out += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return out;
}

void add_word(std::string& words, const std::string& word) {
  if (!words.empty()) words += ' ';
  words += word;
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  return names;
}

// The words of a type name such as "TEXT:{bash,fish}"; empty: any.
std::string choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string words = type.substr(begin + 1, end - begin - 1);
  std::replace(words.begin(), words.end(), ',', ' ');
  return words;
}

bool takes_file(const CLI::Option& option) {
  return option.get_type_name().find("FILE") != std::string::npos;
}

std::string names_as_pattern(const CLI::Option& option) {
  std::string out;
  for (const std::string& name : names_of(option)) out += (out.empty() ? "" : "|") + name;
  return out;
}

// The cases of `case $previous in` for the options with a value, those with the same kind of value together.
std::string value_cases(const CLI::App& app) {
  std::map<std::string, std::string> patterns;  // action -> of the options
  for (const CLI::Option* option : app.get_options()) {
    if (!option->nonpositional() || option->get_expected_max() == 0 || option->get_type_size_max() == 0) continue;
    const std::string choices = choices_of(*option);
    std::string action = "compopt +o default";  // nothing to propose
    if (!choices.empty()) action = "COMPREPLY=($(compgen -W '" + choices + "' -- \"$current\"))";
    if (takes_file(*option)) action = ":";  // files, which are bash's default
    std::string& pattern = patterns[action];
    pattern += (pattern.empty() ? "" : "|") + names_as_pattern(*option);
  }
  std::string out;
  for (const auto& [action, pattern] : patterns) out += "        " + pattern + ") " + action + "; return ;;\n";
  return out;
}

void collect(const CLI::App& app, const std::string& path, std::vector<Command>& out) {
  Command command{path, "", value_cases(app), false};
  for (const CLI::App* child : app.get_subcommands({})) add_word(command.words, child->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() && choices_of(*option) != "") add_word(command.words, choices_of(*option));
    if (option->get_positional() && takes_file(*option)) command.takes_file = true;
    for (const std::string& name : option->get_lnames()) add_word(command.words, "--" + name);
  }
  out.push_back(command);
  for (const CLI::App* child : app.get_subcommands({})) collect(*child, path + "/" + child->get_name(), out);
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::vector<Command> commands;
  collect(app, "", commands);
  std::string paths;
  for (const Command& command : commands) {
    if (!command.path.empty()) paths += (paths.empty() ? "" : "|") + command.path;
  }
  const std::string name = function_name(app.get_name());
  std::string out =
      "# bash completion of " + app.get_name() + ". In ~/.bashrc:  source <(" + app.get_name() + " completion bash)\n" +
      name +
      "() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command='' words='' word\n"
      "  COMPREPLY=()\n"
      "  for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
      "    case $command/$word in " +
      paths +
      ") command=$command/$word ;; esac\n"
      "  done\n"
      "  case $command in\n";
  for (const Command& command : commands) {
    out += "    '" + command.path + "')\n";
    if (!command.values.empty()) out += "      case $previous in\n" + command.values + "      esac\n";
    if (command.takes_file) out += "      [[ $current == -* ]] || return\n";
    out += "      words='" + command.words + "' ;;\n";
  }
  return out +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "}\n"
         "complete -o default -F " +
         name + " " + app.get_name() + "\n";
}

}  // namespace folio::client
