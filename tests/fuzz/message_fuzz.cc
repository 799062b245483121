// Fuzz target: a first byte says which message the rest is. What the door lets through is in its documented ranges;
// what it refuses gets a short message in valid UTF-8.
#include <google/protobuf/stubs/logging.h>

#include <cmath>
#include <string>

#include "engine/text/detokenizer.h"
#include "server/validation.h"
#include "tests/fuzz/fuzz_target.h"

namespace folio {
namespace {

constexpr TokenId kVocabSize = 1000;
constexpr std::int32_t kMaxNumSeqs = 8;
constexpr std::size_t kLongestMessage = 512;

bool in_range(double value, double low, double high) {
  return value >= low && value <= high;
}

void check_sampling(const SamplingParams& sampling) {
  fuzz_require(in_range(sampling.temperature, 0, 100), "temperature");
  fuzz_require(sampling.top_k >= 0 && sampling.top_k <= kVocabSize, "top_k");
  fuzz_require(in_range(sampling.top_p, 0, 1) && sampling.top_p > 0, "top_p");
  fuzz_require(in_range(sampling.min_p, 0, 1) && sampling.min_p < 1, "min_p");
  fuzz_require(in_range(sampling.repetition_penalty, 0, 100) && sampling.repetition_penalty > 0, "repetition_penalty");
  fuzz_require(in_range(sampling.presence_penalty, -100, 100), "presence_penalty");
  fuzz_require(in_range(sampling.frequency_penalty, -100, 100), "frequency_penalty");
  fuzz_require(sampling.num_logprobs >= -1 && sampling.num_logprobs <= 20, "logprobs");
  fuzz_require(sampling.logit_bias.size() <= 1024, "logit_bias");
  TokenId last = -1;
  for (const auto& [id, bias] : sampling.logit_bias) {
    fuzz_require(id > last && id < kVocabSize && in_range(bias, -1000, 1000), "an entry of logit_bias");
    last = id;
  }
}

void check_stopping(const StoppingParams& stopping) {
  fuzz_require(stopping.max_tokens >= 0, "max_tokens");
  fuzz_require(stopping.min_tokens >= 0 && stopping.min_tokens <= stopping.max_tokens, "min_tokens");
  fuzz_require(stopping.stop.size() <= 64 && stopping.stop_token_ids.size() <= 1024, "the number of stops");
  for (const std::string& stop : stopping.stop) fuzz_require(!stop.empty() && stop.size() <= 1024, "a stop string");
  for (const TokenId id : stopping.stop_token_ids) fuzz_require(id >= 0 && id < kVocabSize, "a stop token");
}

template <class Request>
void check(const std::string& bytes) {
  Request request;
  if (!request.ParseFromString(bytes)) return;
  const RequestLimits limits{"the-model", kVocabSize, kMaxNumSeqs};
  const auto options = check_options(request, limits);
  if (!options) {
    const Error& error = options.error();
    fuzz_require(error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kNotFound, "the code");
    fuzz_require(!error.message.empty() && error.message.size() <= kLongestMessage, "a short message");
    fuzz_require(is_valid_utf8(error.message), "a message of text");
    return;
  }
  check_sampling(options->sampling);
  check_stopping(options->stopping);
  fuzz_require(options->n >= 1 && options->n <= kMaxNumSeqs, "n");
  fuzz_require(options->tenant.size() <= kMaxTenantBytes && options->cache.salt.size() <= kMaxSaltBytes, "names");
  fuzz_require(options->cache.pin_ms >= 0 && !(options->cache.bypass && options->cache.pin_ms > 0), "cache");
}

}  // namespace
}  // namespace folio

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static auto* const quiet = google::protobuf::SetLogHandler(nullptr);
  static_cast<void>(quiet);
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    folio::check<folio::v1::GenerateRequest>(bytes);
  } else {
    folio::check<folio::v1::ChatRequest>(bytes);
  }
  return 0;
}
