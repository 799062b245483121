// The door: what a caller wrote, checked and turned into the engine's values. A refusal names the field and the number.
// The ranges are documented in proto/folio/v1/generation.proto. Pure functions, any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/ids.h"
#include "base/params.h"
#include "folio/v1/generation.pb.h"

namespace folio {

inline constexpr std::size_t kMaxTenantBytes = 256;
inline constexpr std::size_t kMaxSaltBytes = 256;

struct RequestLimits {
  std::string model_name;  // the one served
  TokenId vocab_size = 0;
  std::int32_t max_num_seqs = 0;
};

// Everything of a request but its prompt. sampling.seed is set only if has_seed.
struct CheckedOptions {
  SamplingParams sampling;
  StoppingParams stopping;
  CacheParams cache;
  std::string tenant;
  bool has_seed = false;
  std::int32_t n = 1;
  std::int32_t priority = 0;
  std::uint32_t time_limit_ms = 0;  // 0: none
  bool skip_special = true;
  bool echo = false;
};

// Request: v1::GenerateRequest or v1::ChatRequest, which share these fields.
template <class Request>
Result<CheckedOptions> check_options(const Request& request, const RequestLimits& limits);

// kNotFound unless `model` is empty or the one served.
std::optional<Error> check_model(std::string_view model, const RequestLimits& limits);
// kInvalidArgument naming `field` and the first id outside [0, vocab_size).
std::optional<Error> check_token_ids(std::string_view field, std::span<const TokenId> ids, TokenId vocab_size);

// A caller's words as a part of a message: valid UTF-8, at most 80 bytes, cut at a code-point edge, in quotes.
std::string quoted(std::string_view text);

}  // namespace folio
