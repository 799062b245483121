#include "engine/text/chat_request.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "engine/text/detokenizer.h"

namespace folio {
namespace {

constexpr std::size_t kMaxDepth = 128;
constexpr std::array<std::string_view, 7> kOwnVariables = {
    "messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "raise_exception", "strftime_now"};

// Reads JSON and writes it again with its strings marked. Numbers are copied, not converted.
class JsonMarker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  JsonMarker(const ControlMarks& marks, char root, bool keys_are_variables)
      : marks_(marks), root_(root), keys_are_variables_(keys_are_variables) {}

  // Appends `text` marked to `out`; else says what is wrong with it.
  std::optional<std::string> run(std::string_view text, std::string& out) {
    out_ = &out;
    if (nlohmann::json::sax_parse(text.begin(), text.end(), this)) return std::nullopt;
    return error_;
  }

  bool null() override { return value("null"); }
  bool boolean(bool v) override { return value(v ? "true" : "false"); }
  bool number_integer(std::int64_t v) override { return value(std::to_string(v)); }
  bool number_unsigned(std::uint64_t v) override { return value(std::to_string(v)); }
  bool number_float(double /*v*/, const std::string& raw) override { return value(raw); }
  bool string(std::string& v) override { return value(json_quoted(marks_.mark(v))); }
  bool binary(nlohmann::json::binary_t& /*v*/) override { return false; }  // JSON text has none
  bool start_object(std::size_t /*size*/) override { return open('{'); }
  bool start_array(std::size_t /*size*/) override { return open('['); }
  bool end_object() override { return close('}'); }
  bool end_array() override { return close(']'); }

  bool key(std::string& v) override {
    if (keys_are_variables_ && depth_ == 1) {
      for (const std::string_view own : kOwnVariables) {
        if (v == own) return fail("'" + v + "' is given by the server and cannot be replaced");
      }
    }
    comma();
    *out_ += json_quoted(marks_.mark(v)) + ": ";
    first_ = true;
    return true;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return fail("not valid JSON (byte " + std::to_string(position) + ")");
  }

 private:
  bool fail(std::string why) {
    error_ = std::move(why);
    return false;
  }
  bool wrong_root() { return fail(root_ == '[' ? "must be a JSON array" : "must be a JSON object"); }
  void comma() {
    if (!first_) *out_ += ", ";
    first_ = false;
  }
  bool value(std::string_view text) {
    if (depth_ == 0) return wrong_root();
    comma();
    *out_ += text;
    return true;
  }
  bool open(char bracket) {
    if (depth_ == 0 && bracket != root_) return wrong_root();
    if (depth_ == kMaxDepth) return fail("nested deeper than " + std::to_string(kMaxDepth) + " levels");
    comma();
    *out_ += bracket;
    first_ = true;
    ++depth_;
    return true;
  }
  bool close(char bracket) {
    *out_ += bracket;
    first_ = false;
    --depth_;
    return true;
  }

  const ControlMarks& marks_;
  const char root_;
  const bool keys_are_variables_;
  std::string* out_ = nullptr;
  std::string error_;
  std::size_t depth_ = 0;
  bool first_ = true;  // nothing stands before the next value that a comma must part it from
};

Error invalid(std::string field, const std::string& why) {
  return {ErrorCode::kInvalidArgument, std::move(field) + ": " + why};
}

bool is_role(std::string_view role) {
  return !role.empty() && std::all_of(role.begin(), role.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::optional<Error> append_message(const ChatMessage& message, std::size_t index, const ControlMarks& marks,
                                    std::string& out) {
  const std::string name = "messages[" + std::to_string(index) + "]";
  if (!is_role(message.role)) return invalid(name + ".role", "must be one or more of A-Z, a-z, 0-9, _ and -");
  out += "{\"role\": " + json_quoted(message.role);
  const auto append = [&](const char* field, const std::string& text) -> std::optional<Error> {
    if (!is_valid_utf8(text)) return invalid(name + "." + field, "not valid UTF-8");
    out.append(", \"").append(field).append("\": ").append(json_quoted(marks.mark(text)));
    return std::nullopt;
  };
  if (auto error = append("content", message.content)) return error;
  if (!message.name.empty()) {
    if (auto error = append("name", message.name)) return error;
  }
  if (!message.tool_call_id.empty()) {
    if (auto error = append("tool_call_id", message.tool_call_id)) return error;
  }
  if (!message.tool_calls_json.empty()) {
    out += ", \"tool_calls\": ";
    if (auto why = JsonMarker(marks, '[', false).run(message.tool_calls_json, out)) {
      return invalid(name + ".tool_calls", *why);
    }
  }
  out += '}';
  return std::nullopt;
}

}  // namespace

std::string json_quoted(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::string> make_chat_request(const ChatInput& input, const ControlMarks& marks) {
  if (input.messages.empty()) return invalid("messages", "must hold at least one message");
  std::string out = "{\"messages\": [";
  for (std::size_t i = 0; i < input.messages.size(); ++i) {
    if (i > 0) out += ", ";
    if (auto error = append_message(input.messages[i], i, marks, out)) return *error;
  }
  out += "], \"tools\": ";
  if (input.tools_json.empty()) {
    out += "null";
  } else if (auto why = JsonMarker(marks, '[', false).run(input.tools_json, out)) {
    return invalid("tools", *why);
  }
  out += ", \"args\": ";
  if (input.template_args_json.empty()) {
    out += "{}";
  } else if (auto why = JsonMarker(marks, '{', true).run(input.template_args_json, out)) {
    return invalid("template_args", *why);
  }
  out.append(", \"add_generation_prompt\": ").append(input.add_generation_prompt ? "true" : "false").append("}");
  return out;
}

}  // namespace folio
