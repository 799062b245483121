// POST /tokenize and /detokenize, in vLLM's forms. Front worker.
#pragma once
#include <string>

#include "server/generation.h"
#include "server/http/http_message.h"

namespace folio {

// {"prompt", or "messages"; "add_special_tokens" (false), "parse_special" (false), "return_token_strs" (false)}
//   -> {"count", "max_model_len", "tokens", "token_strs"}
HttpResponse answer_tokenize(const Generation& generation, const std::string& body);
// {"tokens", "skip_special_tokens" (true)} -> {"prompt"}
HttpResponse answer_detokenize(const Generation& generation, const std::string& body);

}  // namespace folio
