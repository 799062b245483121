// The forward pass of every architecture, over a backend's fused operations. See decoder_config.h for what varies.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/model/decoder_config.h"
#include "engine/model/decoder_weights.h"
#include "engine/model/model.h"

namespace folio {

class Decoder final : public Model {
 public:
  static constexpr std::size_t kMaxScoredRows = 64;  // rows of logits that are in memory at a time for scores

  // Loads the weights through the backend; the file is not needed afterwards. Throws GgufError: a missing tensor, a
  // wrong shape (expected and found), a layer tensor that this forward pass would leave out.
  Decoder(const GgufFile& file, DecoderConfig config, std::int32_t max_context, std::unique_ptr<Backend> backend);

  int depth() const override { return backend_->depth(); }
  void start(const StepBatch& batch) override;
  ForwardTimes collect(std::span<SampledToken> samples, std::span<SampledToken> scores) override;
  std::int32_t vocab_size() const override { return config_.vocab_size; }
  std::int32_t max_context() const override { return max_context_; }
  std::int32_t num_blocks() const override { return backend_->kv_cache().num_blocks; }
  std::int32_t block_size() const override { return backend_->kv_cache().block_size; }

  Backend& backend() { return *backend_; }
  // Of the step started last, those of its logit rows: [vocab_size] each. For tests and measurements.
  std::int32_t num_logit_rows() const { return logits_.rows; }
  void read_logits(std::int32_t row, std::span<float> out) { backend_->read_logits(logits_, row, out); }

 private:
  Logits logits(std::span<const std::int32_t> rows);
  void score(std::span<const ScoreRequest> scores);
  void run_attention(const DecoderLayer& layer, int index, float* x);
  void run_feed_forward(const DecoderLayer& layer, float* x);
  Norm norm(const float* weight) const { return {weight, config_.norm_epsilon}; }

  const DecoderConfig config_;
  const std::int32_t max_context_;
  std::unique_ptr<Backend> backend_;
  DecoderWeights weights_;
  std::vector<Rope> ropes_;  // one for each AttentionKind
  // Of the step started last.
  std::int32_t num_tokens_ = 0;
  const float* x_ = nullptr;  // [num_tokens][hidden_size] after the last layer
  Logits logits_;
  std::vector<std::int32_t> score_rows_;  // scratch
  ForwardTimer timer_;
  std::array<ForwardTimes, kMaxStepsInFlight> times_;  // of the steps in flight
  std::size_t num_started_ = 0, num_collected_ = 0;
};

}  // namespace folio
