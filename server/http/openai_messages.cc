#include "server/http/openai_messages.h"

#include <optional>
#include <utility>

#include "server/validation.h"

namespace folio {
namespace {

using nlohmann::json;

// JSON text of a tree that was read from valid UTF-8.
std::string text_of(const json& tree) {
  return tree.dump();
}

std::string element(const std::string& name, std::size_t index) {
  return name + "[" + std::to_string(index) + "]";
}

// Appends a content part's text. An error: what is wrong with it, the field first.
std::optional<Error> append_part(const json& part, const std::string& name, std::string& out) {
  if (!part.is_object()) return invalid_field(name, "must be an object with type and text");
  ObjectReader in(part, name + ".");
  const auto type = in.text("type");
  if (!in.failed() && !type) in.fail("type", "must be given");
  if (type && *type != "text") {
    return invalid_field(name + ".type", folio::quoted(*type) + " is not supported, only \"text\" is");
  }
  const auto text = in.text("text");
  if (!in.failed() && !text) in.fail("text", "must be given");
  if (auto error = in.finish()) return error;
  out += *text;
  return std::nullopt;
}

std::optional<Error> read_content(const json& message, const std::string& name, bool may_be_null, std::string& out) {
  const auto member = message.find("content");
  if (member == message.end() || member->is_null()) {
    if (may_be_null) return std::nullopt;
    return invalid_field(name, "must be a string or a list of text parts");
  }
  if (member->is_string()) {
    out = member->get<std::string>();
    return std::nullopt;
  }
  if (!member->is_array()) return invalid_field(name, "must be a string or a list of text parts");
  if (member->empty()) return invalid_field(name, "an empty list");
  for (std::size_t i = 0; i < member->size(); ++i) {
    if (auto error = append_part((*member)[i], element(name, i), out)) return error;
  }
  return std::nullopt;
}

std::optional<Error> read_message(const json& message, const std::string& name, v1::ChatMessage& out) {
  if (!message.is_object()) return invalid_field(name, "must be an object");
  ObjectReader in(message, name + ".");
  const auto role = in.text("role");
  if (!in.failed() && !role) in.fail("role", "must be given");
  if (role) out.set_role(*role);
  if (auto value = in.text("name")) out.set_name(std::move(*value));
  if (auto value = in.text("tool_call_id")) out.set_tool_call_id(std::move(*value));
  const json* calls = in.find("tool_calls");
  if (calls != nullptr && !calls->is_array()) in.fail("tool_calls", "must be a list");
  const bool has_calls = calls != nullptr && calls->is_array() && !calls->empty();
  if (has_calls) out.set_tool_calls(text_of(*calls));
  // What OpenAI's own answers carry beside the content, when there is something in it.
  in.refuse("refusal", nullptr);
  in.refuse("audio", nullptr);
  in.refuse("function_call", nullptr);
  in.refuse("annotations", json::array());
  in.find("content");
  if (auto error = in.finish()) return error;
  return read_content(message, name + ".content", has_calls, *out.mutable_content());
}

}  // namespace

void read_messages(ObjectReader& in, google::protobuf::RepeatedPtrField<v1::ChatMessage>& out) {
  const json* messages = in.find("messages");
  if (in.failed()) return;
  if (messages == nullptr) return in.fail("messages", "must be given");
  if (!messages->is_array()) return in.fail("messages", "must be a list");
  if (messages->empty()) return in.fail("messages", "an empty list");
  for (std::size_t i = 0; i < messages->size(); ++i) {
    if (const auto error = read_message((*messages)[i], element("messages", i), *out.Add())) return in.fail(*error);
  }
}

void read_template_args(ObjectReader& in, std::string& out) {
  const json* args = in.find("chat_template_kwargs");
  if (args == nullptr) return;
  if (!args->is_object()) return in.fail("chat_template_kwargs", "must be an object");
  out = text_of(*args);
}

}  // namespace folio
