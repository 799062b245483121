// The messages of a chat: OpenAI's forms of one, and what a chat template may be told beside them.
#pragma once
#include <string>

#include "folio/v1/generation.pb.h"
#include "server/http/json_reader.h"

namespace folio {

// The field "messages": a list of at least one. A list of text parts is the parts' texts, joined; another part than
// text is refused by its place. Content may be null beside tool_calls alone.
void read_messages(ObjectReader& in, google::protobuf::RepeatedPtrField<v1::ChatMessage>& out);
// The field "chat_template_kwargs", as JSON text.
void read_template_args(ObjectReader& in, std::string& out);

}  // namespace folio
