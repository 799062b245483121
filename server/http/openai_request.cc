#include "server/http/openai_request.h"

#include <array>
#include <charconv>
#include <limits>
#include <utility>
#include <vector>

#include "server/http/json_reader.h"
#include "server/http/openai_messages.h"
#include "server/validation.h"

namespace folio {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMinInt32 = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kMaxUint32 = std::numeric_limits<std::uint32_t>::max();

// Refused by name, but for the value that asks for nothing.
struct Refused {
  const char* name;
  json harmless;
};

void refuse_all(ObjectReader& in, const std::vector<Refused>& fields) {
  for (const Refused& field : fields) in.refuse(field.name, field.harmless);
}

void refuse_unsupported(ObjectReader& in) {
  static const std::vector<Refused> fields = {
      // OpenAI's
      {"response_format", {{"type", "text"}}},
      {"service_tier", "auto"},
      {"store", false},
      {"metadata", json::object()},
      // vLLM's
      {"use_beam_search", false},
      {"length_penalty", 1.0},
      {"truncate_prompt_tokens", nullptr},
      {"allowed_token_ids", nullptr},
      {"bad_words", json::array()},
      {"spaces_between_special_tokens", true},
      {"structured_outputs", nullptr},
      {"guided_json", nullptr},
      {"guided_regex", nullptr},
      {"guided_choice", nullptr},
      {"guided_grammar", nullptr},
      {"logits_processors", nullptr},
      {"return_tokens_as_token_ids", false},
  };
  refuse_all(in, fields);
}

void read_logit_bias(ObjectReader& in, v1::SamplingOptions& out) {
  const json* biases = in.find("logit_bias");
  if (biases == nullptr) return;
  if (!biases->is_object()) return in.fail("logit_bias", "must be an object of token ids and numbers");
  ObjectReader values(*biases, in.path("logit_bias."));
  for (auto entry = biases->begin(); entry != biases->end(); ++entry) {
    const std::string& key = entry.key();
    std::int32_t id = 0;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (failure != std::errc() || end != key.data() + key.size()) {
      return in.fail("logit_bias", folio::quoted(key) + " is not a token id");
    }
    if (!entry->is_number()) return in.fail("logit_bias[" + std::to_string(id) + "]", "must be a number");
    const auto bias = values.number(key.c_str());
    if (!bias) return in.fail(*values.finish());
    if (!out.mutable_logit_bias()->insert({id, static_cast<float>(*bias)}).second) {
      return in.fail("logit_bias[" + std::to_string(id) + "]", "given twice");
    }
  }
}

void read_sampling(ObjectReader& in, v1::SamplingOptions& out) {
  if (const auto value = in.number("temperature")) out.set_temperature(static_cast<float>(*value));
  if (const auto value = in.number("top_p")) out.set_top_p(static_cast<float>(*value));
  if (const auto value = in.number("min_p")) out.set_min_p(static_cast<float>(*value));
  if (const auto value = in.number("repetition_penalty")) out.set_repetition_penalty(static_cast<float>(*value));
  if (const auto value = in.number("presence_penalty")) out.set_presence_penalty(static_cast<float>(*value));
  if (const auto value = in.number("frequency_penalty")) out.set_frequency_penalty(static_cast<float>(*value));
  if (const auto value = in.integer("top_k", kMinInt32, kMaxInt32)) out.set_top_k(static_cast<std::int32_t>(*value));
  if (const auto value = in.seed("seed")) out.set_seed(*value);
  read_logit_bias(in, out);
}

void read_stop(ObjectReader& in, v1::StoppingOptions& out) {
  const json* stop = in.find("stop");
  if (stop == nullptr) return;
  if (stop->is_string()) return out.add_stop(stop->get<std::string>());
  if (!stop->is_array()) return in.fail("stop", "must be a string or a list of strings");
  for (std::size_t i = 0; i < stop->size(); ++i) {
    if (!(*stop)[i].is_string()) return in.fail("stop[" + std::to_string(i) + "]", "must be a string");
    out.add_stop((*stop)[i].get<std::string>());
  }
}

void read_stopping(ObjectReader& in, v1::StoppingOptions& out) {
  if (const auto value = in.integer("min_tokens", kMinInt32, kMaxInt64)) out.set_min_tokens(*value);
  out.set_ignore_eos(in.boolean("ignore_eos").value_or(false));
  out.set_include_stop(in.boolean("include_stop_str_in_output").value_or(false));
  read_stop(in, out);
  const json* ids = in.find("stop_token_ids");
  if (ids == nullptr) return;
  if (!ids->is_array()) return in.fail("stop_token_ids", "must be a list of token ids");
  read_token_ids(in, "stop_token_ids", *ids, *out.mutable_stop_token_ids());
}

void read_cache(ObjectReader& in, v1::CacheOptions& out) {
  if (const auto salt = in.text("cache_salt")) out.set_salt(*salt);
  out.set_bypass(in.boolean("cache_bypass").value_or(false));
  if (const auto ms = in.integer("cache_pin_ms", 0, kMaxUint32)) out.set_pin_ms(static_cast<std::uint32_t>(*ms));
}

void read_stream(ObjectReader& in, OpenAiForm& form) {
  form.stream = in.boolean("stream").value_or(false);
  const json* options = in.find("stream_options");
  if (options == nullptr) return;
  if (!form.stream) return in.fail("stream_options", "only together with stream");
  if (!options->is_object()) return in.fail("stream_options", "must be an object");
  ObjectReader fields(*options, "stream_options.");
  form.include_usage = fields.boolean("include_usage").value_or(false);
  fields.refuse("include_obfuscation", false);
  fields.refuse("continuous_usage_stats", false);
  if (const auto error = fields.finish()) in.fail(*error);
}

// What both calls have in common.
template <class Request>
void read_common(ObjectReader& in, Request& out, OpenAiForm& form) {
  if (const auto model = in.text("model")) out.set_model(*model);
  if (const auto label = in.text("request_id")) out.set_request_id(*label);
  if (const auto tenant = in.text("tenant")) out.set_tenant(*tenant);
  // Labels that change nothing here: whom the caller speaks for.
  in.text("user");
  in.text("safety_identifier");
  in.text("prompt_cache_key");
  if (const auto n = in.integer("n", 1, kMaxInt32)) out.set_n(static_cast<std::int32_t>(*n));
  if (const auto value = in.integer("priority", kMinInt32, kMaxInt32)) {
    out.set_priority(static_cast<std::int32_t>(*value));
  }
  if (const auto ms = in.integer("time_limit_ms", 0, kMaxUint32)) {
    out.set_time_limit_ms(static_cast<std::uint32_t>(*ms));
  }
  if (const auto skip = in.boolean("skip_special_tokens")) out.set_skip_special(*skip);
  if (const auto count = in.integer("prompt_logprobs", kMinInt32, kMaxInt32)) {
    form.prompt_logprobs = true;
    out.set_prompt_logprobs(static_cast<std::int32_t>(*count));
  }
  read_sampling(in, *out.mutable_sampling());
  read_stopping(in, *out.mutable_stopping());
  read_cache(in, *out.mutable_cache());
  read_stream(in, form);
  refuse_unsupported(in);
}

void read_prompt(ObjectReader& in, v1::GenerateRequest& out) {
  const json* prompt = in.find("prompt");
  if (prompt == nullptr) return in.fail("prompt", "must be given");
  const bool is_batch = prompt->is_array() && !prompt->empty() && !prompt->front().is_number();
  if (is_batch && prompt->size() > 1) {
    return in.fail("prompt", std::to_string(prompt->size()) + " prompts; a request takes one, send one for each");
  }
  const json& only = is_batch ? prompt->front() : *prompt;
  if (only.is_string()) return out.set_text(only.get<std::string>());
  if (!only.is_array()) return in.fail("prompt", "must be a string or a list of token ids");
  read_token_ids(in, "prompt", only, *out.mutable_tokens()->mutable_ids());
}

Result<OpenAiRequest> read_completion(const json& body) {
  ObjectReader in(body);
  OpenAiForm form;
  v1::GenerateRequest out;
  read_common(in, out, form);
  read_prompt(in, out);
  if (const auto value = in.boolean("add_special_tokens")) out.set_add_special(*value);
  out.set_parse_special(in.boolean("parse_special").value_or(false));
  out.mutable_stopping()->set_max_tokens(in.integer("max_tokens", 0, kMaxInt64).value_or(kDefaultCompletionTokens));
  out.set_echo(in.boolean("echo").value_or(false));
  if (const auto count = in.integer("logprobs", kMinInt32, kMaxInt32)) {
    form.logprobs = true;
    form.echo_logprobs = out.echo();
    out.set_logprobs(static_cast<std::int32_t>(*count));
  }
  if (form.echo_logprobs) {
    if (form.prompt_logprobs) in.fail("prompt_logprobs", "not together with echo and logprobs, which give them");
    // They stand in each answer: a prompt's would be sent n times.
    if (out.n() > 1) in.fail("n", "only 1 together with echo and logprobs");
    out.set_prompt_logprobs(out.logprobs());
  }
  in.refuse("suffix", "");
  in.refuse("best_of", std::max(out.n(), 1), "not supported: it must be n or not be given");
  if (const auto error = in.finish()) return *error;
  return OpenAiRequest{std::move(out), std::move(form)};
}

// The old name and the new one of the same limit.
void read_chat_limit(ObjectReader& in, v1::StoppingOptions& out) {
  const auto old_name = in.integer("max_tokens", 0, kMaxInt64);
  const auto new_name = in.integer("max_completion_tokens", 0, kMaxInt64);
  if (old_name && new_name && *old_name != *new_name) {
    return in.fail("max_tokens", "differs from max_completion_tokens");
  }
  if (old_name) out.set_max_tokens(*old_name);
  if (new_name) out.set_max_tokens(*new_name);
}

void read_chat_logprobs(ObjectReader& in, v1::ChatRequest& out, OpenAiForm& form) {
  form.logprobs = in.boolean("logprobs").value_or(false);
  const auto count = in.integer("top_logprobs", kMinInt32, kMaxInt32);
  if (count && !form.logprobs) return in.fail("top_logprobs", "only together with logprobs");
  if (form.logprobs) out.set_logprobs(static_cast<std::int32_t>(count.value_or(0)));
}

void refuse_unsupported_chat(ObjectReader& in) {
  static const std::vector<Refused> fields = {
      {"tools", json::array()},        {"tool_choice", "none"},       {"functions", json::array()},
      {"function_call", "none"},       {"modalities", {"text"}},      {"audio", nullptr},
      {"prediction", nullptr},         {"reasoning_effort", nullptr}, {"verbosity", nullptr},
      {"web_search_options", nullptr}, {"chat_template", nullptr},    {"continue_final_message", false},
      {"documents", nullptr},
  };
  refuse_all(in, fields);
  in.boolean("parallel_tool_calls");  // of tools, without which neither value asks for anything
}

Result<OpenAiRequest> read_chat(const json& body) {
  ObjectReader in(body);
  OpenAiForm form;
  form.call = OpenAiCall::kChat;
  v1::ChatRequest out;
  read_common(in, out, form);
  read_chat_limit(in, *out.mutable_stopping());
  read_chat_logprobs(in, out, form);
  refuse_unsupported_chat(in);
  if (const auto value = in.boolean("add_generation_prompt")) out.set_add_generation_prompt(*value);
  read_template_args(in, *out.mutable_template_args());
  read_messages(in, *out.mutable_messages());
  if (const auto error = in.finish()) return *error;
  return OpenAiRequest{std::move(out), std::move(form)};
}

struct Renamed {
  std::string_view from;  // a field of folio.v1, or the beginning of one
  std::string_view completion;
  std::string_view chat;
};
// The first that fits.
constexpr std::array<Renamed, 9> kRenamed = {{
    {"stopping.include_stop", "include_stop_str_in_output", "include_stop_str_in_output"},
    {"sampling.", "", ""},
    {"stopping.", "", ""},
    {"cache.", "cache_", "cache_"},
    {"prompt.tokens", "prompt", "prompt"},
    {"prompt: ", "prompt: ", "messages: "},
    {"text: ", "prompt: ", "messages: "},
    {"logprobs: ", "logprobs: ", "top_logprobs: "},
    {"template_args", "template_args", "chat_template_kwargs"},
}};

}  // namespace

void read_token_ids(ObjectReader& in, const std::string& name, const json& list,
                    google::protobuf::RepeatedField<std::int32_t>& out) {
  for (std::size_t i = 0; i < list.size(); ++i) {
    const auto id = as_integer(list[i]);
    if (!id) return in.fail(name + "[" + std::to_string(i) + "]", "must be a token id");
    if (*id < 0 || *id > kMaxInt32) {
      return in.fail(name + "[" + std::to_string(i) + "]", "token id " + std::to_string(*id) + " is out of range");
    }
    out.Add(static_cast<std::int32_t>(*id));
  }
}

Result<OpenAiRequest> read_openai_request(OpenAiCall call, std::string_view body) {
  const auto parsed = parse_json_object(body);
  if (!parsed) return parsed.error();
  return call == OpenAiCall::kChat ? read_chat(*parsed) : read_completion(*parsed);
}

Error with_openai_names(Error error, OpenAiCall call) {
  if (error.code != ErrorCode::kInvalidArgument) return error;
  for (const Renamed& name : kRenamed) {
    if (!error.message.starts_with(name.from)) continue;
    error.message.replace(0, name.from.size(), call == OpenAiCall::kChat ? name.chat : name.completion);
    break;
  }
  // The two that name a second field.
  for (const std::string_view second : {"stopping.", "cache."}) {
    if (!error.message.starts_with("min_tokens: ") && !error.message.starts_with("cache_pin_ms: ")) break;
    const std::size_t at = error.message.find(second);
    if (at != std::string::npos) error.message.replace(at, second.size(), second == "cache." ? "cache_" : "");
  }
  return error;
}

}  // namespace folio
