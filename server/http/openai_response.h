// An answer in OpenAI's forms: one JSON object, or the events of a stream. One renderer per answer, one thread at a
// time; no transport in here. The joined texts of the events are the whole answer's text, byte for byte.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/text/detokenizer.h"
#include "folio/v1/generation.pb.h"
#include "server/http/json_writer.h"
#include "server/http/openai_form.h"

namespace folio {

class OpenAiRenderer {
 public:
  explicit OpenAiRenderer(OpenAiForm form) : form_(std::move(form)) {}

  // The whole answer.
  std::string whole(const v1::GenerateResponse& response);
  // Appends the events that `chunk` gives rise to; none, when it tells the reader nothing yet.
  void append_events(const v1::GenerateChunk& chunk, std::string& out);
  // Appends what ends a stream: the error, if there is one, and [DONE].
  static void append_end(const Error* error, std::string& out);

 private:
  // Of one choice, from chunk to chunk.
  struct Choice {
    bool begun = false;
    Utf8Stream pieces;            // of the tokens so far
    std::int64_t num_points = 0;  // code points of their text
  };

  Choice& choice_of(std::int32_t index);
  bool is_chat() const { return form_.call == OpenAiCall::kChat; }
  void append_choice(std::string& out, const v1::Output& output);
  void append_prompt_event(const v1::PromptInfo& info, std::string& out) const;
  void append_event(const v1::GenerateChunk& chunk, const v1::Output& output, std::string& out);
  void append_usage_event(const v1::GenerateChunk& chunk, std::string& out) const;
  void add_head(JsonObject& object, std::string_view kind) const;
  void add_text(JsonObject& choice, const v1::Output& output, bool first) const;
  void add_logprobs(JsonObject& choice, const v1::Output& output);
  void append_completion_logprobs(std::string& out, const v1::Output& output);

  const OpenAiForm form_;
  std::string id_;  // known from the first chunk on
  std::vector<Choice> choices_;
};

}  // namespace folio
