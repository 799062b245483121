#include "client/load_test/openai_wire.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "client/json_text.h"
#include "client/text.h"

namespace folio::client {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessageBytes = 200;
constexpr std::size_t kMaxWordBytes = 32;        // of a finish reason
constexpr std::size_t kMaxTextBytes = 8U << 20;  // of an answer, kept for a server without usage
constexpr int kMaxOutputs = 1024;

// nullptr: not there, or null.
const json* find(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto member = object.find(name);
  return member == object.end() || member->is_null() ? nullptr : &*member;
}

std::optional<std::int64_t> find_count(const json& object, const char* name) {
  const json* value = find(object, name);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  return std::max<std::int64_t>(0, value->get<std::int64_t>());
}

std::string find_text(const json& object, const char* name) {
  const json* value = find(object, name);
  return value != nullptr && value->is_string() ? value->get<std::string>() : "";
}

std::string dump(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// {"error": {...}} and {"error": "words"}; {"object": "error", ...} is that of older vLLM and SGLang.
bool is_error(const json& object) {
  return find(object, "error") != nullptr || find_text(object, "object") == "error";
}

std::string words_of(const json& object) {
  const json* error = find(object, "error");
  const json& inner = error == nullptr ? object : *error;
  if (inner.is_string()) return inner.get<std::string>();
  for (const char* name : {"message", "detail"}) {
    const json* words = find(inner, name);
    if (words != nullptr) return words->is_string() ? words->get<std::string>() : dump(*words);
  }
  return dump(inner);
}

bool is_port(const std::string& port) {
  return !port.empty() && port.size() <= 5 &&
         std::all_of(port.begin(), port.end(), [](char c) { return c >= '0' && c <= '9'; }) && std::stoi(port) >= 1 &&
         std::stoi(port) <= 65535;
}

}  // namespace

std::string HttpAddress::authority() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == (tls ? "443" : "80") ? name : name + ":" + port;
}

HttpAddress parse_http_address(const std::string& address, bool has_ca) {
  const auto refuse = [&address](const std::string& why) {
    return UsageError("--address '" + printable(repaired(address)) + "': " + why);
  };
  HttpAddress out;
  std::string_view rest = address;
  const std::size_t scheme_end = rest.find("://");
  const bool is_url = scheme_end != std::string_view::npos;
  if (is_url) {
    const std::string_view scheme = rest.substr(0, scheme_end);
    if (scheme != "http" && scheme != "https") throw refuse("only http:// and https:// are known");
    out.tls = scheme == "https";
    if (!out.tls && has_ca) throw refuse("http:// is without TLS, which --tls-ca asks for");
    rest.remove_prefix(scheme_end + 3);
    const std::size_t path = std::min(rest.find('/'), rest.size());
    out.prefix = rest.substr(path);
    rest = rest.substr(0, path);
    while (out.prefix.ends_with('/')) out.prefix.pop_back();
    if (out.prefix.ends_with("/v1")) out.prefix.resize(out.prefix.size() - 3);
  } else {
    out.tls = has_ca;
  }
  const std::size_t bracket = rest.starts_with('[') ? rest.find(']') : std::string_view::npos;
  const std::size_t colon = rest.find(':', bracket == std::string_view::npos ? 0 : bracket);
  out.host = rest.substr(0, colon);
  if (colon != std::string_view::npos) out.port = rest.substr(colon + 1);
  if (colon == std::string_view::npos && is_url) out.port = out.tls ? "443" : "80";
  if (bracket != std::string_view::npos) {
    if (out.host.size() != bracket + 1) throw refuse("after ] comes a port");
    out.host = out.host.substr(1, bracket - 1);
  }
  const auto is_odd = [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '?' || c == '#'; };
  if (out.host.empty() || out.host.find('@') != std::string::npos || !is_port(out.port) ||
      std::any_of(address.begin(), address.end(), is_odd)) {
    throw refuse("must be host:port, http://host[:port][/prefix] or https://...");
  }
  return out;
}

std::string http_request(const HttpAddress& address, const std::string& api_key, std::string_view path,
                         std::string_view body) {
  std::string out = body.empty() ? "GET " : "POST ";
  out.append(address.prefix).append(path).append(" HTTP/1.1\r\nHost: ").append(address.authority());
  out += "\r\nUser-Agent: folio-client\r\nAccept: */*\r\n";
  if (!api_key.empty()) out.append("Authorization: Bearer ").append(api_key).append("\r\n");
  if (!body.empty()) {
    out.append("Content-Type: application/json\r\nContent-Length: ").append(std::to_string(body.size())).append("\r\n");
  }
  return out.append("\r\n").append(body);
}

std::string completion_body(const RequestSpec& request, const std::string& model) {
  json out = {{"stream", true},
              {"stream_options", {{"include_usage", true}}},
              {"max_tokens", request.max_tokens},
              {"temperature", request.temperature}};
  if (!model.empty()) out["model"] = model;
  if (request.prompt.empty()) {
    out["prompt"] = request.text;
  } else {
    out["prompt"] = request.prompt;
  }
  if (!request.stop.empty()) out["stop"] = request.stop;
  if (request.n != 1) out["n"] = request.n;
  if (request.top_p) out["top_p"] = *request.top_p;
  constexpr std::uint64_t kSeedBits = ~std::uint64_t{0} >> 1U;
  if ((request.seed & kSeedBits) != 0) out["seed"] = request.seed & kSeedBits;
  if (request.top_k) out["top_k"] = *request.top_k;
  if (request.ignore_eos) out["ignore_eos"] = true;
  if (!request.tenant.empty()) out["tenant"] = request.tenant;
  return dump(out);
}

std::string tokenize_body(TokenizeForm form, const std::string& model, const std::string& text) {
  if (form == TokenizeForm::kContent) return dump({{"content", text}, {"add_special", false}});
  json out = {{"prompt", text}, {"add_special_tokens", false}};
  if (!model.empty()) out["model"] = model;
  return dump(out);
}

std::optional<std::vector<std::int32_t>> parse_tokens(std::string_view body) {
  const json answer = parse_json(body);
  const json* tokens = find(answer, "tokens");
  if (tokens == nullptr || !tokens->is_array()) return std::nullopt;
  std::vector<std::int32_t> out;
  for (const json& id : *tokens) {
    if (!id.is_number_integer()) return std::nullopt;
    out.push_back(id.get<std::int32_t>());
  }
  return out;
}

std::optional<ServedModel> parse_models(std::string_view body) {
  const json answer = parse_json(body);
  const json* models = find(answer, "data");
  if (models == nullptr || !models->is_array() || models->empty()) return std::nullopt;
  const json& first = models->front();
  ServedModel out;
  out.name = find_text(first, "id");
  if (out.name.empty()) return std::nullopt;
  out.max_context = find_count(first, "max_model_len").value_or(0);
  if (const json* meta = find(first, "meta")) {  // llama-server's
    out.vocab_size =
        static_cast<std::int32_t>(std::min<std::int64_t>(find_count(*meta, "n_vocab").value_or(0), 1 << 30));
    if (out.max_context == 0) out.max_context = find_count(*meta, "n_ctx_train").value_or(0);
  }
  return out;
}

std::string error_words(std::string_view body) {
  const json answer = parse_json(body);
  return shown_words(answer.is_object() ? words_of(answer) : std::string(body), kMaxMessageBytes);
}

void AnswerReader::fail(std::string error, std::string message) {
  if (!end_.error.empty()) return;  // the first one tells why
  end_.error = std::move(error);
  end_.message = shown_words(message, kMaxMessageBytes);
}

std::optional<Arrival> AnswerReader::read(const SseEvent& event) {
  if (event.data == "[DONE]") {
    done_ = true;
    return std::nullopt;
  }
  const json message = parse_json(event.data);
  if (event.name == "error" || is_error(message)) {
    fail("error event", message.is_object() ? words_of(message) : event.data);
    return std::nullopt;
  }
  if (!message.is_object()) {
    fail("bad answer", "an event that is no JSON object: " + event.data);
    return std::nullopt;
  }
  Arrival out;
  if (const json* choices = find(message, "choices"); choices != nullptr && choices->is_array()) {
    for (const json& choice : *choices) read_choice(choice, out);
  }
  if (const json* usage = find(message, "usage")) {
    read_usage(*usage, out);
  } else if (out.text_bytes > 0) {
    is_continuous_ = false;
  }
  return out;
}

void AnswerReader::read_choice(const json& choice, Arrival& arrival) {
  const std::int64_t index = find_count(choice, "index").value_or(0);
  if (index >= kMaxOutputs) return fail("bad answer", "choices.index: " + std::to_string(index));
  if (choices_.size() <= static_cast<std::size_t>(index)) choices_.resize(static_cast<std::size_t>(index) + 1);
  Choice& whole = choices_[static_cast<std::size_t>(index)];
  const std::string reason = find_text(choice, "finish_reason");
  if (!reason.empty()) whole.finish_reason = shown_words(reason, kMaxWordBytes);
  const std::string text = find_text(choice, "text");
  arrival.index = static_cast<std::int32_t>(index);
  arrival.text_bytes += static_cast<std::int64_t>(text.size());
  num_kept_bytes_ += text.size();
  if (num_kept_bytes_ <= kMaxTextBytes) whole.text += text;
}

// In the last event; or in each one, and then what it has more than the one before came now.
void AnswerReader::read_usage(const json& usage, Arrival& arrival) {
  if (const auto count = find_count(usage, "completion_tokens")) {
    const std::int64_t before = end_.output_tokens.value_or(0);
    const bool has_content = arrival.text_bytes > 0 || end_.output_tokens.has_value();
    if (is_continuous_ && has_content) arrival.tokens = std::max<std::int64_t>(0, *count - before);
    end_.output_tokens = count;
  }
  if (const auto count = find_count(usage, "prompt_tokens")) end_.prompt_tokens = count;
  if (const json* details = find(usage, "prompt_tokens_details")) {
    if (const auto count = find_count(*details, "cached_tokens")) end_.cached_tokens = count;
  }
}

StreamEnd AnswerReader::end() const {
  StreamEnd out = end_;
  const auto fail_with = [&out](std::string error, std::string message) {
    out.error = std::move(error);
    out.message = std::move(message);
    return out;
  };
  if (!out.error.empty()) return out;
  if (!done_) return fail_with("no end", "the stream ended without [DONE]");
  for (const Choice& choice : choices_) {
    const std::string& reason = choice.finish_reason;
    // The last two are TGI's.
    const bool normal = reason == "stop" || reason == "length" || reason == "eos_token" || reason == "stop_sequence";
    if (reason.empty()) return fail_with("no finish", "an output without a finish_reason");
    if (!normal) return fail_with("finish " + reason, "ended by the server");
  }
  // A stream without any output is an empty one; one with fewer than asked for lost some.
  if (!choices_.empty() && choices_.size() < static_cast<std::size_t>(num_outputs_)) {
    return fail_with("no finish", std::to_string(choices_.size()) + " outputs of " + std::to_string(num_outputs_));
  }
  return out;
}

std::vector<std::string> AnswerReader::texts_without_usage() const {
  std::vector<std::string> out;
  if (end_.output_tokens || num_kept_bytes_ > kMaxTextBytes) return out;
  for (const Choice& choice : choices_) {
    if (!choice.text.empty()) out.push_back(choice.text);
  }
  return out;
}

StreamEnd not_a_stream(const HttpHead& head, std::string_view body) {
  StreamEnd out;
  out.message = error_words(body);
  if (head.status != 200) {
    out.error = "HTTP " + std::to_string(head.status);
  } else if (is_error(parse_json(body))) {
    out.error = "error body";
  } else {
    out.error = "not a stream";
    out.message = "Content-Type " + (head.content_type.empty() ? "is not set" : shown_words(head.content_type, 80)) +
                  ", not text/event-stream";
  }
  return out;
}

}  // namespace folio::client
