// A model: a step's batch in, tokens out. It owns its weights, its KV cache and its backend; it knows arrays only.
//
// A step is started and later collected. While one is in flight the next may be started, whose tokens may be samples of
// it that nobody knows yet (StepBatch::tokens): so a device computes while the host plans. Steps are collected in the
// order of their starts. One thread, the engine's.
#pragma once
#include <cstdint>
#include <span>

#include "engine/kernels/device_lost.h"
#include "engine/kernels/step_batch.h"
#include "engine/model/forward_times.h"

namespace folio {

class Model {
 public:
  virtual ~Model() = default;
  // Steps that may be in flight, started and not collected: 1, or 2 (kMaxStepsInFlight).
  virtual int depth() const { return 1; }
  // Computes K/V of all tokens of the batch into their slots, its samples and its scores: all of it is under way when
  // this returns, or done. Nothing of the batch, nor what its spans and pointers lead to, is read afterwards. Throws
  // std::runtime_error: the step was not started and the cache stays usable; or DeviceLost.
  virtual void start(const StepBatch& batch) = 0;
  // Waits for the oldest step in flight: samples[i] and scores[i] belong to its batch's. Gives where its time went;
  // zeros where that is not known. Throws as start, if that step failed: it is not in flight any more.
  virtual ForwardTimes collect(std::span<SampledToken> samples, std::span<SampledToken> scores) = 0;

  virtual std::int32_t vocab_size() const = 0;
  virtual std::int32_t max_context() const = 0;  // tokens; the file's context length or less
  virtual std::int32_t num_blocks() const = 0;   // usable blocks; ids are 1..num_blocks
  virtual std::int32_t block_size() const = 0;
};

}  // namespace folio
