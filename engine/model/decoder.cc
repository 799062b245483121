#include "engine/model/decoder.h"

#include <algorithm>

#include "base/check.h"

namespace folio {
namespace {

enum Slot { kX, kQ, kK, kV, kAttended };

}  // namespace

Decoder::Decoder(const GgufFile& file, DecoderConfig config, std::int32_t max_context, std::unique_ptr<Backend> backend)
    : config_(std::move(config)),
      max_context_(max_context),
      backend_(std::move(backend)),
      weights_(load_weights(file, config_, *backend_)) {
  for (const AttentionKind& kind : config_.attentions) {
    ropes_.push_back({config_.rotary_dim, config_.rope_interleaved, backend_->load_vector(kind.inverse_frequencies)});
  }
}

void Decoder::start(const StepBatch& batch) {
  num_tokens_ = batch.num_tokens();
  FOLIO_CHECK(num_tokens_ > 0, "a step without tokens");
  FOLIO_CHECK(num_started_ - num_collected_ < kMaxStepsInFlight, "a step is collected before one more is started");
  timer_.start();
  backend_->begin_step(batch, ropes_);
  timer_.lap(ForwardPhase::kPlan);
  float* x =
      backend_->activations(kX, static_cast<std::size_t>(num_tokens_) * static_cast<std::size_t>(config_.hidden_size));
  backend_->embed(*weights_.embedding, config_.embedding_scale, x);
  timer_.lap(ForwardPhase::kEmbed);
  for (std::size_t i = 0; i < weights_.layers.size(); ++i) {
    run_attention(weights_.layers[i], static_cast<int>(i), x);
    run_feed_forward(weights_.layers[i], x);
  }
  x_ = x;
  score(batch.scores);  // first: the logits that stay are those of the logit rows
  timer_.lap_sample();
  logits_ = logits(batch.logit_rows);
  timer_.lap(ForwardPhase::kLogits);
  backend_->sample(logits_, batch.samples);
  backend_->end_step();
  timer_.lap_sample();
  times_[num_started_++ % kMaxStepsInFlight] = timer_.times();
}

// Where operations return before they are done, the time until then says nothing of theirs.
ForwardTimes Decoder::collect(std::span<SampledToken> samples, std::span<SampledToken> scores) {
  FOLIO_CHECK(num_collected_ < num_started_, "a step is started before it is collected");
  const ForwardTimes& times = times_[num_collected_++ % kMaxStepsInFlight];
  backend_->collect(samples, scores);
  return backend_->depth() == 1 ? times : ForwardTimes();
}

Logits Decoder::logits(std::span<const std::int32_t> rows) {
  const WeightMatrix& output = weights_.own_output ? *weights_.own_output : *weights_.embedding;
  return backend_->logits(x_, norm(weights_.output_norm), output, rows);
}

void Decoder::run_attention(const DecoderLayer& layer, int index, float* x) {
  const auto tokens = static_cast<std::size_t>(num_tokens_);
  const auto q_floats = tokens * static_cast<std::size_t>(layer.q->columns());
  const auto kv_floats = tokens * static_cast<std::size_t>(layer.k->columns());
  float* q = backend_->activations(kQ, q_floats);
  float* k = backend_->activations(kK, kv_floats);
  float* v = backend_->activations(kV, kv_floats);
  float* attended = backend_->activations(kAttended, q_floats);
  const Projection projections[] = {
      {layer.q.get(), layer.q_bias, q}, {layer.k.get(), layer.k_bias, k}, {layer.v.get(), layer.v_bias, v}};
  backend_->norm_project(x, norm(layer.attention_norm), projections);
  timer_.lap(ForwardPhase::kQkv);
  const std::int32_t kind = config_.layer_attention[static_cast<std::size_t>(index)];
  backend_->rope_write_kv(index, kind, norm(layer.q_norm), norm(layer.k_norm), config_.query_scale, q, k, v);
  timer_.lap(ForwardPhase::kRopeWriteKv);
  backend_->attend(index, config_.attentions[static_cast<std::size_t>(kind)].window, q, attended);
  timer_.lap(ForwardPhase::kAttention);
  backend_->project_add(attended, *layer.attention_out, norm(layer.post_attention_norm), x);
  timer_.lap(ForwardPhase::kAttentionOut);
}

void Decoder::run_feed_forward(const DecoderLayer& layer, float* x) {
  backend_->gate_up(x, norm(layer.ff_norm), *layer.gate, *layer.up, config_.activation, *layer.down);
  timer_.lap(ForwardPhase::kGateUp);
  backend_->down_add(*layer.down, norm(layer.post_ff_norm), x);
  timer_.lap(ForwardPhase::kDown);
}

// In groups, so that a long prompt's logits are never there at once.
void Decoder::score(std::span<const ScoreRequest> scores) {
  for (std::size_t begin = 0; begin < scores.size(); begin += kMaxScoredRows) {
    const std::span<const ScoreRequest> group = scores.subspan(begin, std::min(kMaxScoredRows, scores.size() - begin));
    score_rows_.clear();
    for (const ScoreRequest& request : group) score_rows_.push_back(request.row);
    backend_->score(logits(score_rows_), group);
  }
}

}  // namespace folio
