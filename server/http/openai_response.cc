#include "server/http/openai_response.h"

#include <algorithm>

#include "server/http/http_error.h"

namespace folio {
namespace {

// OpenAI knows "stop" and "length"; "abort" is vLLM's. A time limit cuts an answer as a token limit does.
std::string_view finish_name(v1::FinishReason reason) {
  switch (reason) {
    case v1::FINISH_REASON_STOP_TOKEN:
    case v1::FINISH_REASON_STOP_STRING:
      return "stop";
    case v1::FINISH_REASON_LENGTH:
    case v1::FINISH_REASON_DEADLINE:
      return "length";
    case v1::FINISH_REASON_CANCELLED:
      return "abort";
    default:
      return "error";
  }
}

void add_finish(JsonObject& choice, const v1::Output& output) {
  if (output.finish_reason() == v1::FINISH_REASON_UNSPECIFIED) {
    choice.raw("finish_reason", "null");
    return;
  }
  choice.text("finish_reason", finish_name(output.finish_reason()));
  // As vLLM tells what matched.
  if (output.has_stop_token()) {
    choice.integer("stop_reason", output.stop_token());
  } else if (output.has_stop_string()) {
    choice.text("stop_reason", output.stop_string());
  } else {
    choice.raw("stop_reason", "null");
  }
}

void add_usage(JsonObject& object, const v1::Usage& usage) {
  JsonObject out(object.key("usage"));
  out.integer("prompt_tokens", usage.prompt_tokens());
  out.integer("completion_tokens", usage.output_tokens());
  out.integer("total_tokens", usage.prompt_tokens() + usage.output_tokens());
  JsonObject details(out.key("prompt_tokens_details"));
  details.integer("cached_tokens", usage.cached_tokens());
  details.close();
  out.close();
}

std::int64_t count_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80; });
}

// A piece that is a part of a character has a name that tells its bytes, as OpenAI's do: two of them never look alike.
std::string completion_token(std::string_view piece) {
  if (is_valid_utf8(piece)) return std::string(piece);
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "bytes:";
  for (const char c : piece) {
    out.append("\\x");
    out += kHex[static_cast<unsigned char>(c) >> 4U];
    out += kHex[static_cast<unsigned char>(c) & 15U];
  }
  return out;
}

// null for the first token of a prompt, which nothing precedes.
void append_logprob(std::string& out, const v1::TokenLogprob& token) {
  if (token.has_logprob()) {
    append_json_number(out, token.logprob());
  } else {
    out += "null";
  }
}

// The token itself and the best ones, each spelling once: a key that stands twice is read differently by everybody.
void append_top_of_completion(std::string& out, const v1::TokenLogprob& token) {
  if (!token.has_logprob()) {
    out += "null";
    return;
  }
  JsonObject object(out);
  std::vector<std::string> seen;
  const auto add = [&](const v1::TokenLogprob& entry) {
    std::string name = completion_token(entry.piece());
    if (std::find(seen.begin(), seen.end(), name) != seen.end()) return;
    object.number(name, entry.logprob());
    seen.push_back(std::move(name));
  };
  std::for_each(token.top().begin(), token.top().end(), add);
  add(token);
  object.close();
}

void add_chat_token(JsonObject& object, const v1::TokenLogprob& token) {
  object.text("token", token.piece());
  append_logprob(object.key("logprob"), token);
  append_json_array(object.key("bytes"), token.piece(),
                    [](std::string& out, char byte) { out += std::to_string(static_cast<unsigned char>(byte)); });
}

using Tokens = google::protobuf::RepeatedPtrField<v1::TokenLogprob>;

// In a chat's form.
void append_tokens(std::string& out, const Tokens& tokens) {
  append_json_array(out, tokens, [](std::string& to, const v1::TokenLogprob& token) {
    JsonObject entry(to);
    add_chat_token(entry, token);
    append_json_array(entry.key("top_logprobs"), token.top(), [](std::string& inner, const v1::TokenLogprob& best) {
      JsonObject top(inner);
      add_chat_token(top, best);
      top.close();
    });
    entry.close();
  });
}

void append_chat_logprobs(std::string& out, const v1::Output& output) {
  JsonObject object(out);
  append_tokens(object.key("content"), output.logprobs());
  object.raw("refusal", "null");
  object.close();
}

// The output with the prompt's log probabilities before its own.
v1::Output with_prompt(const v1::PromptInfo& info, const v1::Output& output) {
  v1::Output out = output;
  *out.mutable_logprobs() = info.logprobs();
  out.mutable_logprobs()->MergeFrom(output.logprobs());
  return out;
}

}  // namespace

OpenAiRenderer::Choice& OpenAiRenderer::choice_of(std::int32_t index) {
  const auto place = static_cast<std::size_t>(index);
  if (choices_.size() <= place) choices_.resize(place + 1);
  return choices_[place];
}

void OpenAiRenderer::add_head(JsonObject& object, std::string_view kind) const {
  object.text("id", id_);
  object.text("object", kind);
  object.integer("created", form_.created);
  object.text("model", form_.model);
}

void OpenAiRenderer::append_completion_logprobs(std::string& out, const v1::Output& output) {
  Choice& state = choice_of(output.index());
  const Tokens& tokens = output.logprobs();
  JsonObject object(out);
  append_json_array(object.key("tokens"), tokens, [](std::string& to, const v1::TokenLogprob& token) {
    append_json_string(to, completion_token(token.piece()));
  });
  append_json_array(object.key("token_logprobs"), tokens, append_logprob);
  append_json_array(object.key("top_logprobs"), tokens, append_top_of_completion);
  append_json_array(object.key("text_offset"), tokens, [&state](std::string& to, const v1::TokenLogprob& token) {
    to += std::to_string(state.num_points);
    std::string text;
    state.pieces.push(token.piece(), text);
    state.num_points += count_points(text);
  });
  object.close();
}

void OpenAiRenderer::add_logprobs(JsonObject& choice, const v1::Output& output) {
  std::string& out = choice.key("logprobs");
  if (!form_.logprobs) {
    out += "null";
  } else if (is_chat()) {
    append_chat_logprobs(out, output);
  } else {
    append_completion_logprobs(out, output);
  }
}

void OpenAiRenderer::append_choice(std::string& out, const v1::Output& output) {
  JsonObject choice(out);
  choice.integer("index", output.index());
  if (is_chat()) {
    JsonObject message(choice.key("message"));
    message.text("role", "assistant");
    message.text("content", output.text());
    message.raw("refusal", "null");
    message.close();
  } else {
    choice.text("text", output.text());
  }
  add_logprobs(choice, output);
  add_finish(choice, output);
  choice.close();
}

std::string OpenAiRenderer::whole(const v1::GenerateResponse& response) {
  const v1::PromptInfo& info = response.prompt_info();
  id_ = form_.id_prefix + std::to_string(info.id());
  std::string out;
  JsonObject object(out);
  add_head(object, is_chat() ? "chat.completion" : "text_completion");
  append_json_array(object.key("choices"), response.outputs(), [&](std::string& to, const v1::Output& output) {
    if (form_.echo_logprobs) return append_choice(to, with_prompt(info, output));
    append_choice(to, output);
  });
  if (form_.prompt_logprobs) append_tokens(object.key("prompt_logprobs"), info.logprobs());
  add_usage(object, response.usage());
  object.natural("seed", response.seed());
  object.close();
  return out;
}

void OpenAiRenderer::append_events(const v1::GenerateChunk& chunk, std::string& out) {
  if (chunk.has_prompt_info()) id_ = form_.id_prefix + std::to_string(chunk.prompt_info().id());
  if (form_.echo_logprobs && !chunk.prompt_info().logprobs().empty()) {
    append_event(chunk, with_prompt(chunk.prompt_info(), v1::Output()), out);
  }
  if (form_.prompt_logprobs && !chunk.prompt_info().logprobs().empty()) append_prompt_event(chunk.prompt_info(), out);
  for (const v1::Output& output : chunk.outputs()) append_event(chunk, output, out);
  if (chunk.has_usage() && form_.include_usage) append_usage_event(chunk, out);
}

void OpenAiRenderer::add_text(JsonObject& choice, const v1::Output& output, bool first) const {
  if (!is_chat()) {
    choice.text("text", output.text());
    return;
  }
  JsonObject delta(choice.key("delta"));
  if (first) delta.text("role", "assistant");
  if (first || !output.text().empty()) delta.text("content", output.text());
  delta.close();
}

void OpenAiRenderer::append_event(const v1::GenerateChunk& chunk, const v1::Output& output, std::string& out) {
  Choice& state = choice_of(output.index());
  const bool first = !std::exchange(state.begun, true);
  const bool ends = output.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  const bool has_logprobs = form_.logprobs && !output.logprobs().empty();
  if (output.text().empty() && !ends && !has_logprobs && !(first && is_chat())) return;
  out += "data: ";
  JsonObject event(out);
  add_head(event, is_chat() ? "chat.completion.chunk" : "text_completion");
  JsonObject choice(event.key("choices") += '[');
  choice.integer("index", output.index());
  add_text(choice, output, first);
  add_logprobs(choice, output);
  add_finish(choice, output);
  choice.close();
  out += ']';
  if (form_.include_usage) event.raw("usage", "null");
  if (chunk.has_seed()) event.natural("seed", chunk.seed());
  event.close();
  out += "\n\n";
}

void OpenAiRenderer::append_prompt_event(const v1::PromptInfo& info, std::string& out) const {
  out += "data: ";
  JsonObject event(out);
  add_head(event, is_chat() ? "chat.completion.chunk" : "text_completion");
  event.raw("choices", "[]");
  append_tokens(event.key("prompt_logprobs"), info.logprobs());
  if (form_.include_usage) event.raw("usage", "null");
  event.close();
  out += "\n\n";
}

void OpenAiRenderer::append_usage_event(const v1::GenerateChunk& chunk, std::string& out) const {
  out += "data: ";
  JsonObject event(out);
  add_head(event, is_chat() ? "chat.completion.chunk" : "text_completion");
  event.raw("choices", "[]");
  add_usage(event, chunk.usage());
  event.natural("seed", chunk.seed());
  event.close();
  out += "\n\n";
}

void OpenAiRenderer::append_end(const Error* error, std::string& out) {
  if (error != nullptr) out.append("data: ").append(error_json(*error)).append("\n\n");
  out += "data: [DONE]\n\n";
}

}  // namespace folio
