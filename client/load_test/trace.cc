#include "client/load_test/trace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string_view>

#include "client/json_text.h"

namespace folio::client {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t kMooncakeBlock = 512;  // tokens of one of its hash_ids
constexpr std::int64_t kMostTokens = 10'000'000;
constexpr double kMostSeconds = 1e7;  // as of the flags
constexpr std::array<std::string_view, 6> kOwnFields = {"at",     "prompt",        "prompt_tokens",
                                                        "prefix", "prefix_tokens", "output_tokens"};
constexpr std::array<std::string_view, 4> kMooncakeFields = {"timestamp", "input_length", "output_length", "hash_ids"};

[[noreturn]] void refuse(std::string_view field, const std::string& what) {
  throw std::runtime_error(std::string(field) + ": " + what);
}

std::int64_t tokens(const Json& line, const char* field, std::int64_t least = 1) {
  if (!line.contains(field)) refuse(field, "is missing");
  const Json& value = line.at(field);
  if (!value.is_number_integer() || value < least || value > kMostTokens) {
    refuse(field, value.dump() + " is not a whole number in [" + std::to_string(least) + ", " +
                      std::to_string(kMostTokens) + "]");
  }
  return value.get<std::int64_t>();
}

std::optional<double> time(const Json& line, const char* field, double unit_s) {
  if (!line.contains(field)) return std::nullopt;
  const Json& value = line.at(field);
  if (!value.is_number() || value < 0 || value > kMostSeconds / unit_s) {
    refuse(field, value.dump() + " is not a number in [0, " + Json(kMostSeconds / unit_s).dump() + "]");
  }
  return value.get<double>() * unit_s;
}

std::string name(const Json& value, const char* field) {
  if (value.is_string() && !value.get_ref<const std::string&>().empty()) return value.get<std::string>();
  if (!value.is_number_integer()) refuse(field, value.dump() + " is neither a name nor a whole number");
  return value.dump();
}

template <std::size_t kCount>
void check_names(const Json& line, const std::array<std::string_view, kCount>& known) {
  for (const auto& [field, value] : line.items()) {
    if (std::find(known.begin(), known.end(), field) != known.end()) continue;
    std::string names;
    for (const std::string_view each : known) names += (names.empty() ? "" : ", ") + std::string(each);
    refuse(field, "is not one of " + names);
  }
}

TraceEntry own_entry(const Json& line) {
  check_names(line, kOwnFields);
  TraceEntry entry;
  entry.at_s = time(line, "at", 1);
  entry.output_tokens = tokens(line, "output_tokens");
  if (line.contains("prompt")) {
    for (const char* field : {"prompt_tokens", "prefix", "prefix_tokens"}) {
      if (line.contains(field)) refuse(field, "goes with a length, and this line has a prompt");
    }
    if (!line.at("prompt").is_string() || line.at("prompt").get_ref<const std::string&>().empty()) {
      refuse("prompt", line.at("prompt").dump() + " is not a text of at least one character");
    }
    entry.prompt = line.at("prompt").get<std::string>();
    return entry;
  }
  if (!line.contains("prompt_tokens")) refuse("prompt", "is missing, and so is prompt_tokens");
  entry.prompt_tokens = tokens(line, "prompt_tokens");
  if (!line.contains("prefix") && !line.contains("prefix_tokens")) return entry;
  if (!line.contains("prefix")) refuse("prefix", "is missing beside prefix_tokens");
  entry.shared.push_back({name(line.at("prefix"), "prefix"), tokens(line, "prefix_tokens")});
  if (entry.shared[0].tokens > entry.prompt_tokens) {
    refuse("prefix_tokens", std::to_string(entry.shared[0].tokens) + " is more than the prompt's " +
                                std::to_string(entry.prompt_tokens));
  }
  return entry;
}

TraceEntry mooncake_entry(const Json& line) {
  check_names(line, kMooncakeFields);
  TraceEntry entry;
  entry.at_s = time(line, "timestamp", 1e-3);
  entry.prompt_tokens = tokens(line, "input_length");
  entry.output_tokens = tokens(line, "output_length");
  if (!line.contains("hash_ids")) return entry;
  const Json& ids = line.at("hash_ids");
  if (!ids.is_array()) refuse("hash_ids", "is not a list");
  std::int64_t left = entry.prompt_tokens;
  for (const Json& id : ids) {
    if (left == 0) refuse("hash_ids", "name more than the prompt's " + std::to_string(entry.prompt_tokens) + " tokens");
    entry.shared.push_back({name(id, "hash_ids"), std::min(left, kMooncakeBlock)});
    left -= entry.shared.back().tokens;
  }
  return entry;
}

TraceEntry parse_line(const std::string& text) {
  const Json line = parse_json(text);
  if (line.is_discarded()) throw std::runtime_error("is not JSON, or nested too deeply");
  if (!line.is_object()) throw std::runtime_error("is not a JSON object");
  return line.contains("input_length") ? mooncake_entry(line) : own_entry(line);
}

// The entry's time from the first one's.
void check_time(TraceEntry& entry, const std::vector<TraceEntry>& before, double& first_s) {
  if (before.empty()) {
    first_s = entry.at_s.value_or(0);
  } else if (entry.at_s.has_value() != before[0].at_s.has_value()) {
    throw std::runtime_error(entry.at_s ? "has a time, and the first line has none"
                                        : "has no time, and the first line has one");
  }
  if (!entry.at_s) return;
  *entry.at_s -= first_s;
  if (!before.empty() && *entry.at_s < *before.back().at_s) {
    throw std::runtime_error("its time is before that of the line above");
  }
}

}  // namespace

std::vector<TraceEntry> read_trace(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw std::runtime_error(path + ": is a directory");
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  std::vector<TraceEntry> entries;
  double first_s = 0;
  std::string text;
  for (std::int64_t number = 1; std::getline(file, text); ++number) {
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      TraceEntry entry = parse_line(text);
      check_time(entry, entries, first_s);
      entries.push_back(std::move(entry));
    } catch (const std::runtime_error& wrong) {
      throw std::runtime_error(path + ":" + std::to_string(number) + ": " + wrong.what());
    }
  }
  if (file.bad() || entries.empty()) throw std::runtime_error(path + ": no request in it");
  return entries;
}

}  // namespace folio::client
