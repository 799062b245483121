// Sampling on the host: one row of logits to one token id. Every sum over the vocabulary has one order, ties go to the
// lower id, random numbers are a function of (seed, sequence index, position): a row's result depends on nothing else.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/params.h"
#include "engine/sampling/row_math.h"

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

// A token whose log probability is asked for, at a row of the step's tokens.
struct ScoreRequest {
  std::int32_t row = 0;  // of the T tokens: the one before it
  TokenId token = -1;
  std::int32_t num_logprobs = 0;  // as SamplingParams::num_logprobs, at least 0
};

inline constexpr TokenId kNoToken = -1;

struct TokenLogprob {
  TokenId id = -1;
  float logprob = 0.0F;  // natural log of the softmax of the raw logits
};

// A token that was sampled, or that was given and scored.
struct SampledToken {
  TokenId id = kNoToken;          // kNoToken: no value of its row is above -infinity, so there is nothing to choose
  float logprob = 0.0F;           // set when params->num_logprobs >= 0
  std::vector<TokenLogprob> top;  // num_logprobs best by raw logit, ties to the lower id; fewer where fewer are numbers
};

// Reused between calls, by one thread at a time; of no meaning to the caller.
struct SamplerScratch {
  std::vector<std::int32_t> counts;   // [vocab], all 0 between calls
  std::vector<TokenId> seen;          // ids whose count is not 0
  std::vector<Candidate> raw;         // logits before bias, penalties and masks changed them, in the order of change
  std::vector<Candidate> candidates;  // what top_k, min_p or top_p left to look at
  RowWeights weights;
};

// Logprobs below this are reported as this, so that they are finite numbers whatever the logits are.
inline constexpr float kLogprobFloor = -9999.0F;

// The chosen id is in [0, logits.size()), or kNoToken when no logit is above -infinity: the numbers are broken, all NaN
// for one. `logits` has vocab_size (>= 1) values, which are changed on the way and given back as they were: a row may
// be sampled several times, one after the other. They should be finite, and one that is not does no harm: NaN and
// -infinity are not chosen. When `masked` leaves nothing, it is ignored. Ids outside the vocabulary, in any list, are
// passed over.
//
// A token is drawn by walking the kept ids in rising order until the sum of their weights passes uniform_random() times
// their total. Writes nothing but `logits` and `scratch`, so different rows may be sampled on several threads.
SampledToken sample_row(const SampleRequest& request, std::span<float> logits, SamplerScratch& scratch);

// The request's token with its log probability and the best ones: to the bit what sample_row() says of it, had it been
// chosen. kNoToken as there. REQUIRES that the token is in the vocabulary.
SampledToken score_row(const ScoreRequest& request, std::span<const float> logits, SamplerScratch& scratch);

// Counter-based: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011).
// Uniform in [0, 1), 53 bits.
double uniform_random(std::uint64_t seed, std::int32_t sequence_index, std::int64_t position);

}  // namespace folio
