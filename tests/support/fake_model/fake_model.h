// A Model over a FakeCache: checks a batch against its own description, and gives for each logit row the token that the
// hash of all tokens before it makes the best. Greedy whatever the sampling says; a token's logprob is made from the
// same hash, so that wrong reads show there too.
#pragma once
#include <functional>
#include <vector>

#include "engine/model/model.h"
#include "tests/support/fake_model/fake_cache.h"

namespace folio {

class FakeModel final : public Model {
 public:
  FakeModel(std::int32_t num_blocks, std::int32_t block_size, std::int32_t max_context, TokenId vocab_size);

  Logits forward(const StepBatch& batch) override;
  void sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) override;
  void score(std::span<const ScoreRequest> scores, std::span<SampledToken> out) override;

  std::int32_t vocab_size() const override { return vocab_size_; }
  std::int32_t max_context() const override { return max_context_; }
  std::int32_t num_blocks() const override { return num_blocks_; }
  std::int32_t block_size() const override { return block_size_; }

  // Called first in forward, on the engine's thread; may throw or wait. Set before the engine's first request.
  void set_hook(std::function<void(const StepBatch&)> hook) { hook_ = std::move(hook); }

 private:
  std::vector<std::uint64_t> compute_sequence(const StepBatch& batch, std::size_t s);

  const std::int32_t num_blocks_;
  const std::int32_t block_size_;
  const std::int32_t max_context_;
  const TokenId vocab_size_;
  FakeCache cache_;
  std::function<void(const StepBatch&)> hook_;
  std::vector<std::uint64_t> hashes_;  // of the step's tokens
  std::vector<float> logits_;
};

// What the model gives after this prompt, with nobody else there.
std::vector<TokenId> fake_outputs(std::vector<TokenId> prompt, std::int64_t num_tokens, TokenId vocab_size);
float fake_logprob(std::span<const TokenId> tokens_before);
float fake_score(std::span<const TokenId> tokens);  // of the last of them, as a prompt's token

}  // namespace folio
