// The forward pass of every architecture, over a backend's fused operations. See decoder_config.h for what varies.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernels/backend.h"
#include "engine/model/decoder_config.h"
#include "engine/model/decoder_weights.h"
#include "engine/model/model.h"

namespace folio {

class Decoder final : public Model {
 public:
  // Loads the weights through the backend; the file is not needed afterwards. Throws GgufError: a missing tensor, a
  // wrong shape (expected and found), a layer tensor that this forward pass would leave out.
  Decoder(const GgufFile& file, DecoderConfig config, std::int32_t max_context, std::unique_ptr<ThreadPool> pool,
          std::unique_ptr<KvCache> cache, std::unique_ptr<Backend> backend);

  Logits forward(const StepBatch& batch) override;
  void sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) override;
  void score(std::span<const ScoreRequest> scores, std::span<SampledToken> out) override;
  ForwardTimes forward_times() const override { return timer_.times(); }
  std::int32_t vocab_size() const override { return config_.vocab_size; }
  std::int32_t max_context() const override { return max_context_; }
  std::int32_t num_blocks() const override { return cache_->layout().num_blocks; }
  std::int32_t block_size() const override { return cache_->layout().block_size; }

  KvCache& cache() { return *cache_; }

 private:
  Logits logits(std::span<const std::int32_t> rows);
  void run_attention(const DecoderLayer& layer, int index, float* x);
  void run_feed_forward(const DecoderLayer& layer, float* x);
  Norm norm(const std::vector<float>& weight) const {
    return {weight.empty() ? nullptr : weight.data(), config_.norm_epsilon};
  }

  const DecoderConfig config_;
  const std::int32_t max_context_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<Backend> backend_;
  DecoderWeights weights_;
  std::vector<Rope> ropes_;  // one for each AttentionKind
  std::int32_t num_tokens_ = 0;
  const float* x_ = nullptr;              // [num_tokens][hidden_size] of the last forward, after its last layer
  std::vector<std::int32_t> score_rows_;  // scratch
  ForwardTimer timer_;
};

}  // namespace folio
