// A chat as the helper process gets it: checked, its strings marked, one JSON object in one line of text.
#pragma once
#include <string>
#include <string_view>

#include "base/error.h"
#include "engine/text/chat_template.h"
#include "engine/text/control_marks.h"

namespace folio {

// {"messages": [...], "tools": [...] or null, "args": {...}, "add_generation_prompt": true or false}. Numbers of the
// caller's JSON stay as they are written. kInvalidArgument names the field and, for a message, its index.
Result<std::string> make_chat_request(const ChatInput& input, const ControlMarks& marks);

// `text` (UTF-8) as a JSON string, quotes included.
std::string json_quoted(std::string_view text);

}  // namespace folio
