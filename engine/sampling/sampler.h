// Sampling on the host: one row of logits to one token id. Every sum over the vocabulary has one order, ties go to the
// lower id, random numbers are a function of (seed, sequence index, position): a row's result depends on nothing else.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/params.h"

namespace folio {

// One row to sample. Spans outlive the call.
struct SampleRequest {
  std::int32_t logit_row = 0;  // index into the step's logits
  const SamplingParams* params = nullptr;
  std::int32_t sequence_index = 0;  // which of the request's n
  std::int64_t position = 0;        // position that the new token will take, counted from the prompt's start
  std::span<const TokenId> tokens;  // prompt and output so far (read by penalties only)
  std::int64_t num_prompt_tokens = 0;
  std::span<const TokenId> masked;  // ids that may not be given (end ids before min_tokens)
};

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0.0F;  // natural log of the softmax of the raw logits
};

struct SampledToken {
  TokenId id = -1;
  float logprob = 0.0F;           // set when params->num_logprobs >= 0
  std::vector<TokenLogprob> top;  // num_logprobs best, by logprob, ties to the lower id
};

// `logits` has vocab_size finite values and is overwritten. `scratch` is reused between calls.
struct SamplerScratch {
  std::vector<std::int32_t> counts;
  std::vector<TokenLogprob> candidates;
};
SampledToken sample_row(const SampleRequest& request, std::span<float> logits, SamplerScratch& scratch);

// Counter-based: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
// Uniform in [0, 1), 53 bits.
double uniform_random(std::uint64_t seed, std::int32_t sequence_index, std::int64_t position);

}  // namespace folio
