// A model that is handed on but for this: a block that begins to be written is first overwritten with poison, all of
// it. Whoever still reads what stood there before, or reads ahead of what was written, gets other numbers than alone.
#pragma once
#include <functional>
#include <vector>

#include "engine/kernels/kv_cache.h"
#include "engine/model/decoder.h"

namespace folio {

class PoisonModel final : public Model {
 public:
  // `model` was loaded by load_model for the CPU, has computed nothing yet and outlives this.
  PoisonModel(Decoder& model, int depth);

  int depth() const override { return depth_; }
  void start(const StepBatch& batch) override;
  ForwardTimes collect(std::span<SampledToken> samples, std::span<SampledToken> scores) override {
    --num_in_flight_;
    return model_.collect(samples, scores);
  }
  std::int32_t vocab_size() const override { return model_.vocab_size(); }
  std::int32_t max_context() const override { return model_.max_context(); }
  std::int32_t num_blocks() const override { return model_.num_blocks(); }
  std::int32_t block_size() const override { return model_.block_size(); }

  // Called first in start, on the engine's thread; may throw or wait. Set before the engine's first request.
  void set_hook(std::function<void(const StepBatch&)> hook) { hook_ = std::move(hook); }
  std::int64_t num_copies() const { return num_copies_; }  // of blocks; to be read while the engine is idle
  std::int64_t num_behind() const { return num_behind_; }  // steps started while one was in flight
  std::int64_t num_taken() const { return num_taken_; }    // blocks that began to be written

 private:
  void poison(BlockId block);

  Decoder& model_;
  const int depth_;
  KvCache& cache_;
  std::function<void(const StepBatch&)> hook_;
  std::vector<float> logits_;  // scratch
  int num_in_flight_ = 0;
  std::int64_t num_behind_ = 0;
  std::int64_t num_copies_ = 0;
  std::int64_t num_taken_ = 0;
};

}  // namespace folio
