#include "server/validation.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/text/detokenizer.h"

namespace folio {
namespace {

constexpr std::size_t kMaxRequestIdBytes = 256;
constexpr std::size_t kMaxStopStrings = 64;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr std::size_t kMaxAllStopBytes = 8192;  // a queue full of requests holds so many each, times six
constexpr std::size_t kMaxStopTokenIds = 1024;
constexpr std::size_t kMaxLogitBias = 1024;
constexpr std::size_t kMaxQuotedBytes = 80;
constexpr std::int32_t kMaxLogprobs = 20;

using MaybeError = std::optional<Error>;

Error invalid(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", value);
  return text;
}

// A range of floats as it is documented. `open_low`: low itself is outside; `open_high` the same.
struct Range {
  double low;
  double high;
  bool open_low = false;
  bool open_high = false;

  bool holds(double value) const {
    return (open_low ? value > low : value >= low) && (open_high ? value < high : value <= high);  // false for NaN
  }
  std::string text() const {
    std::string out(open_low ? "(" : "[");
    return out.append(number(low)).append(", ").append(number(high)).append(open_high ? ")" : "]");
  }
};

MaybeError check_float(std::string_view field, double value, const Range& range) {
  if (range.holds(value)) return std::nullopt;
  return invalid(std::string(field) + ": " + number(value) + " is not in " + range.text());
}

MaybeError check_int(std::string_view field, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return std::nullopt;
  return invalid(std::string(field) + ": " + std::to_string(value) + " is not in [" + std::to_string(low) + ", " +
                 std::to_string(high) + "]");
}

MaybeError check_count(std::string_view field, std::size_t count, std::size_t limit, std::string_view unit) {
  if (count <= limit) return std::nullopt;
  return invalid(std::string(field) + ": " + std::to_string(count) + " " + std::string(unit) + ", at most " +
                 std::to_string(limit) + " are taken");
}

MaybeError check_logit_bias(const v1::SamplingOptions& in, TokenId vocab_size, SamplingParams& out) {
  if (auto error = check_count("sampling.logit_bias", in.logit_bias().size(), kMaxLogitBias, "entries")) return error;
  for (const auto& [id, bias] : in.logit_bias()) {
    if (id < 0 || id >= vocab_size) {
      return invalid("sampling.logit_bias: token id " + std::to_string(id) + " is not in [0, " +
                     std::to_string(vocab_size) + ")");
    }
    if (auto error = check_float("sampling.logit_bias[" + std::to_string(id) + "]", bias, {-1000, 1000})) return error;
    out.logit_bias.emplace_back(id, bias);
  }
  std::sort(out.logit_bias.begin(), out.logit_bias.end());
  return std::nullopt;
}

MaybeError check_sampling(const v1::SamplingOptions& in, TokenId vocab_size, SamplingParams& out) {
  if (in.has_temperature()) out.temperature = in.temperature();
  if (in.has_top_p()) out.top_p = in.top_p();
  if (in.has_repetition_penalty()) out.repetition_penalty = in.repetition_penalty();
  out.min_p = in.min_p();
  out.presence_penalty = in.presence_penalty();
  out.frequency_penalty = in.frequency_penalty();
  out.top_k = in.top_k() <= 0 || in.top_k() > vocab_size ? 0 : in.top_k();
  const std::tuple<const char*, double, Range> floats[] = {
      {"sampling.temperature", out.temperature, {0, 100}},
      {"sampling.top_p", out.top_p, {0, 1, true}},
      {"sampling.min_p", out.min_p, {0, 1, false, true}},
      {"sampling.repetition_penalty", out.repetition_penalty, {0, 100, true}},
      {"sampling.presence_penalty", out.presence_penalty, {-100, 100}},
      {"sampling.frequency_penalty", out.frequency_penalty, {-100, 100}},
  };
  for (const auto& [field, value, range] : floats) {
    if (auto error = check_float(field, value, range)) return error;
  }
  return check_logit_bias(in, vocab_size, out);
}

MaybeError check_stopping(const v1::StoppingOptions& in, TokenId vocab_size, StoppingParams& out) {
  if (in.has_max_tokens()) {
    if (in.max_tokens() < 0) {
      return invalid("stopping.max_tokens: " + std::to_string(in.max_tokens()) + " is below 0");
    }
    out.max_tokens = in.max_tokens();
  }
  if (in.min_tokens() < 0 || in.min_tokens() > out.max_tokens) {
    return invalid("stopping.min_tokens: " + std::to_string(in.min_tokens()) +
                   (in.min_tokens() < 0 ? " is below 0" : " is above stopping.max_tokens"));
  }
  out.min_tokens = in.min_tokens();
  if (auto error = check_count("stopping.stop", in.stop().size(), kMaxStopStrings, "strings")) return error;
  std::size_t num_bytes = 0;
  for (int i = 0; i < in.stop_size(); ++i) {
    const std::string field = "stopping.stop[" + std::to_string(i) + "]";
    if (in.stop(i).empty()) return invalid(field + ": empty");
    if (auto error = check_count(field, in.stop(i).size(), kMaxStopBytes, "bytes")) return error;
    out.stop.push_back(in.stop(i));
    num_bytes += in.stop(i).size();
  }
  if (auto error = check_count("stopping.stop", num_bytes, kMaxAllStopBytes, "bytes together")) return error;
  if (auto error = check_count("stopping.stop_token_ids", in.stop_token_ids().size(), kMaxStopTokenIds, "ids")) {
    return error;
  }
  out.stop_token_ids.assign(in.stop_token_ids().begin(), in.stop_token_ids().end());
  out.ignore_eos = in.ignore_eos();
  out.include_stop = in.include_stop();
  return check_token_ids("stopping.stop_token_ids", out.stop_token_ids, vocab_size);
}

MaybeError check_cache(const v1::CacheOptions& in, CacheParams& out) {
  if (auto error = check_count("cache.salt", in.salt().size(), kMaxSaltBytes, "bytes")) return error;
  if (in.bypass() && in.pin_ms() > 0) return invalid("cache.pin_ms: not together with cache.bypass");
  out.salt = in.salt();
  out.bypass = in.bypass();
  out.pin_ms = in.pin_ms();
  return std::nullopt;
}

}  // namespace

std::string quoted(std::string_view text) {
  std::string out("\"");
  out.append(sanitize_utf8(truncate_utf8(text, kMaxQuotedBytes)));
  out.append(text.size() > kMaxQuotedBytes ? "...\"" : "\"");
  return out;
}

std::optional<Error> check_model(std::string_view model, const RequestLimits& limits) {
  if (model.empty() || model == limits.model_name) return std::nullopt;
  return Error{ErrorCode::kNotFound, "model: " + quoted(model) + " is not served, but " + quoted(limits.model_name)};
}

std::optional<Error> check_token_ids(std::string_view field, std::span<const TokenId> ids, TokenId vocab_size) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocab_size) continue;
    return invalid(std::string(field) + "[" + std::to_string(i) + "]: token id " + std::to_string(ids[i]) +
                   " is not in [0, " + std::to_string(vocab_size) + ")");
  }
  return std::nullopt;
}

template <class Request>
Result<CheckedOptions> check_options(const Request& request, const RequestLimits& limits) {
  CheckedOptions out;
  if (auto error = check_model(request.model(), limits)) return *error;
  if (auto error = check_count("request_id", request.request_id().size(), kMaxRequestIdBytes, "bytes")) return *error;
  if (auto error = check_sampling(request.sampling(), limits.vocab_size, out.sampling)) return *error;
  if (auto error = check_stopping(request.stopping(), limits.vocab_size, out.stopping)) return *error;
  if (auto error = check_cache(request.cache(), out.cache)) return *error;
  if (auto error = check_count("tenant", request.tenant().size(), kMaxTenantBytes, "bytes")) return *error;
  if (auto error = check_int("n", request.n(), 0, limits.max_num_seqs)) return *error;
  if (request.has_logprobs()) {
    if (auto error = check_int("logprobs", request.logprobs(), 0, kMaxLogprobs)) return *error;
    out.sampling.num_logprobs = request.logprobs();
  }
  if (request.has_prompt_logprobs()) {
    if (auto error = check_int("prompt_logprobs", request.prompt_logprobs(), 0, kMaxLogprobs)) return *error;
    out.sampling.num_prompt_logprobs = request.prompt_logprobs();
  }
  out.echo = request.echo();
  out.has_seed = request.sampling().has_seed();
  out.sampling.seed = request.sampling().seed();
  out.tenant = request.tenant();
  out.n = std::max(request.n(), 1);
  out.priority = request.priority();
  out.time_limit_ms = request.time_limit_ms();
  out.skip_special = !request.has_skip_special() || request.skip_special();
  return out;
}

template Result<CheckedOptions> check_options(const v1::GenerateRequest&, const RequestLimits&);
template Result<CheckedOptions> check_options(const v1::ChatRequest&, const RequestLimits&);

}  // namespace folio
