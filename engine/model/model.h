// A model: a step's batch in, logits out. It owns its weights, its KV cache and its backend; it knows arrays only.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/kernels/step_batch.h"
#include "engine/model/forward_times.h"

namespace folio {

class Model {
 public:
  virtual ~Model() = default;
  // Computes K/V of all tokens of the batch into their slots and the logits of its logit rows. Engine thread only.
  // Throws std::runtime_error if the step failed; the cache stays usable.
  virtual Logits forward(const StepBatch& batch) = 0;
  // Samples batch.samples from logits of this model: out[i] belongs to samples[i].
  virtual void sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) = 0;
  // Scores the last forward's batch.scores: out[i] belongs to scores[i]. At most kMaxScoredRows rows of logits are in
  // memory at a time, whatever is asked; those that forward gave are gone. Throws as forward.
  virtual void score(std::span<const ScoreRequest> scores, std::span<SampledToken> out) = 0;
  static constexpr std::size_t kMaxScoredRows = 64;
  // Where the last forward spent its time; zeros where it is not known. Engine thread only.
  virtual ForwardTimes forward_times() const { return {}; }

  virtual std::int32_t vocab_size() const = 0;
  virtual std::int32_t max_context() const = 0;  // tokens; the file's context length or less
  virtual std::int32_t num_blocks() const = 0;   // usable blocks; ids are 1..num_blocks
  virtual std::int32_t block_size() const = 0;
};

}  // namespace folio
