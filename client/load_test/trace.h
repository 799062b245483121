// A load that was recorded or written by hand: a file of JSON objects, one a line, one for each request.
//
//   {"at": 0.35, "prompt": "Once upon a time", "output_tokens": 40}
//   {"at": 0.61, "prompt_tokens": 300, "prefix": "support", "prefix_tokens": 200, "output_tokens": 40}
//
// `at` are seconds, counted from the first line's; on every line or on none. A prompt is text, or a length that is
// filled with tokens; of a length the first `prefix_tokens` are those of `prefix`, a name or number: the same for all
// lines that name it. Mooncake's traces are read too: `timestamp` (milliseconds), `input_length`, `output_length`, and
// `hash_ids`, each of which names the prompt's next 512 tokens.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace folio::client {

// A stretch of a prompt that may be in others too.
struct SharedPart {
  std::string id;
  std::int64_t tokens = 0;
};

struct TraceEntry {
  std::optional<double> at_s;      // from the first entry's
  std::string prompt;              // empty: `prompt_tokens` of made-up content
  std::int64_t prompt_tokens = 0;  // all of them, those of `shared` too
  std::vector<SharedPart> shared;  // the beginning, in order; together at most prompt_tokens
  std::int64_t output_tokens = 0;
};

// At least one entry; either all of them have a time, none before its forerunner's, or none has. Throws
// std::runtime_error "FILE:LINE: what is wrong" (or "FILE: ...").
std::vector<TraceEntry> read_trace(const std::string& path);

}  // namespace folio::client
