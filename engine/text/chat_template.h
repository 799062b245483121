// The chat template that a model file carries, rendered as Jinja renders it: a helper process runs Debian's Jinja2 in
// its immutable sandbox; this class speaks to it over pipes. Limits per render: wall time, the helper's memory, 8 MiB
// of output. A render past a limit fails alone; the helper is then started anew. The server starts without python3 or
// jinja2: available() is false and every render is refused with the reason. Threads: any; renders are done one at a
// time, and the time of one counts from its turn.
//
// The template sees what Hugging Face's apply_chat_template gives it: messages, tools (none when not given), documents
// (none), add_generation_prompt, bos_token, eos_token, raise_exception, strftime_now, and the caller's own variables.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "engine/text/tokenizer.h"

namespace folio {

struct ChatMessage {
  std::string role;  // [A-Za-z0-9_-]+
  std::string content;
  std::string name;             // empty: none
  std::string tool_calls_json;  // empty: none; else a JSON array
  std::string tool_call_id;     // empty: none
};

struct ChatInput {
  std::vector<ChatMessage> messages;
  std::string tools_json;  // empty: none given; else a JSON array
  // Empty: none; else a JSON object: extra variables of the template. May set `documents`, none of the others above.
  std::string template_args_json;
  bool add_generation_prompt = true;
};

struct ChatLimits {
  int timeout_ms = 1000;
  std::size_t max_output_bytes = 8U << 20;
  std::size_t max_memory_bytes = 512U << 20;  // address space of the helper
  std::string python = "/usr/bin/python3";    // Debian's: the one that python3-jinja2 is installed for
  std::string now;  // for tests: what strftime_now reads, "2025-01-15 12:34:56"; empty: the clock
};

class ChatTemplate {
 public:
  // `source`: the template's text, empty if the file has none. Waits until the helper has compiled it. Syntax errors
  // are reported by error(), not thrown. The tokenizer must outlive it.
  ChatTemplate(std::string source, const Tokenizer& tokenizer, ChatLimits limits = {});
  ~ChatTemplate();

  bool available() const;
  const std::string& error() const;  // why not, when not available

  struct Rendered {
    std::string text;  // as the template wrote it
    // Control tokens written by the template are control ids; the same characters in a message, in tools or in
    // template_args are text (control_marks.h). BOS in front when the tokenizer adds one and the text does not begin
    // with it.
    std::vector<TokenId> tokens;
  };
  // kInvalidArgument: the template's own raise_exception (its message), undefined values, a limit, bad JSON, a bad
  // role, not UTF-8, no messages. kFailedPrecondition: not available(). kUnavailable: the helper could not be started
  // again. kInternal: the helper died of the render.
  // Messages are valid UTF-8 of at most 1,000 bytes. A text of more than max_text_bytes is kInvalidArgument too, and
  // not tokenised.
  Result<Rendered> render(const ChatInput& input, std::size_t max_text_bytes = std::string::npos) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace folio
