// The chat template that a model file carries, rendered as Jinja renders it: a helper process runs Debian's Jinja2 in
// its immutable sandbox; this class speaks to it over pipes. Limits per render: wall time, the helper's memory, 8 MiB
// of output. A render past a limit fails alone; the helper is then started anew. The server starts without python3 or
// jinja2: available() is false and every render is refused with the reason. Threads: any; renders are done one at a
// time.
#pragma once
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
  std::string tools_json;          // empty: none given; else a JSON array
  std::string template_args_json;  // empty: none; else a JSON object: extra variables of the template
  bool add_generation_prompt = true;
};

struct ChatLimits {
  int timeout_ms = 1000;
  std::size_t max_output_bytes = 8U << 20;
  std::size_t max_memory_bytes = 512U << 20;
};

class ChatTemplate {
 public:
  // `source`: the template's text, empty if the file has none. Syntax errors are reported by error(), not thrown.
  ChatTemplate(std::string source, const Tokenizer& tokenizer, ChatLimits limits = {});
  ~ChatTemplate();

  bool available() const;
  const std::string& error() const;  // why not, when not available

  // The rendered text with the marks still in it is not shown; `text` is what a reader sees.
  struct Rendered {
    std::string text;
    std::vector<TokenId>
        tokens;  // control tokens written by the template are control ids; the same characters in a message
                 // are text. BOS in front when the tokenizer adds one and the text does not begin with it.
  };
  // kInvalidArgument: the template's own raise_exception (its message), undefined values, limits, bad JSON, bad role.
  // kFailedPrecondition: no template, or no python3/jinja2.
  Result<Rendered> render(const ChatInput& input) const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace folio
