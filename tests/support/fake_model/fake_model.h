// A Model over a FakeCache: checks a batch against its own description, and gives for each logit row the token that the
// hash of all tokens before it makes the best. Greedy whatever the sampling says; a token's logprob is made from the
// same hash, so that wrong reads show there too. A step is done when start() returns, and waits to be collected.
#pragma once
#include <deque>
#include <functional>
#include <vector>

#include "engine/model/model.h"
#include "tests/support/fake_model/fake_cache.h"

namespace folio {

class FakeModel final : public Model {
 public:
  FakeModel(std::int32_t num_blocks, std::int32_t block_size, std::int32_t max_context, TokenId vocab_size,
            int depth = 1);

  int depth() const override { return depth_; }
  // Throw std::logic_error when a batch is not as it should be, or more than depth() steps are in flight.
  void start(const StepBatch& batch) override;
  ForwardTimes collect(std::span<SampledToken> samples, std::span<SampledToken> scores) override;

  std::int32_t vocab_size() const override { return vocab_size_; }
  std::int32_t max_context() const override { return max_context_; }
  std::int32_t num_blocks() const override { return num_blocks_; }
  std::int32_t block_size() const override { return block_size_; }

  // Called first in start, on its thread; may throw or wait. Set before the engine's first request.
  void set_hook(std::function<void(const StepBatch&)> hook) { hook_ = std::move(hook); }
  // A step that was computed, before it waits to be collected: may change what was sampled and scored.
  using Change = std::function<void(const StepBatch&, std::span<SampledToken>, std::span<SampledToken>)>;
  void set_change(Change change) { change_ = std::move(change); }

 private:
  struct Results {
    std::vector<SampledToken> samples, scores;
  };
  std::vector<TokenId> known_tokens(const StepBatch& batch) const;
  std::vector<std::uint64_t> compute_sequence(const StepBatch& batch, std::span<const TokenId> tokens, std::size_t s);
  SampledToken sample(const SampleRequest& request, std::uint64_t hash) const;
  SampledToken score(const ScoreRequest& request) const;

  const std::int32_t num_blocks_;
  const std::int32_t block_size_;
  const std::int32_t max_context_;
  const TokenId vocab_size_;
  const int depth_;
  FakeCache cache_;
  std::function<void(const StepBatch&)> hook_;
  Change change_;
  std::vector<std::uint64_t> hashes_;  // of the step's tokens
  std::vector<TokenId> last_sampled_;  // by the step started last
  std::deque<Results> in_flight_;
};

// What the model gives after this prompt, with nobody else there.
std::vector<TokenId> fake_outputs(std::vector<TokenId> prompt, std::int64_t num_tokens, TokenId vocab_size);
float fake_logprob(std::span<const TokenId> tokens_before);
float fake_score(std::span<const TokenId> tokens);  // of the last of them, as a prompt's token

}  // namespace folio
