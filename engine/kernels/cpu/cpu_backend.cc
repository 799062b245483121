#include "engine/kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "engine/kernels/cpu/attention_worker.h"
#include "engine/kernels/cpu/isa.h"
#include "engine/kernels/cpu/packed_matrix.h"

namespace folio::cpu {
namespace {

std::span<float> row_of(const Logits& logits, std::int32_t row) {
  return {logits.data + static_cast<std::ptrdiff_t>(row) * logits.vocab_size,
          static_cast<std::size_t>(logits.vocab_size)};
}

}  // namespace

struct CpuBackend::Scratch {
  std::vector<std::unique_ptr<Buffer<float>>> activations;
  ActivationRows input, gated;
  Buffer<float> projected, logits, partials;
  std::vector<std::vector<float>> cosines, sines;  // [rope][num_tokens * rotary_dim / 2]
  std::vector<AttentionWorker> attention;          // one a worker
  std::vector<SamplerScratch> samplers;
};

CpuBackend::CpuBackend(const std::string& isa, int num_threads, const AttentionShape& shape, const KvCacheLayout& cache)
    : kernels_(select_kernels(isa)),
      pool_(num_threads),
      cache_(cache, pool_),
      projector_(kernels_, pool_),
      shape_(shape),
      scratch_(std::make_unique<Scratch>()) {
  scratch_->attention.resize(static_cast<std::size_t>(pool_.num_threads()));
  scratch_->samplers.resize(static_cast<std::size_t>(pool_.num_threads()));
}

CpuBackend::~CpuBackend() = default;

KvCacheSize CpuBackend::kv_cache() const {
  const KvCacheLayout& layout = cache_.layout();
  return {layout.num_blocks, layout.block_size, layout.total_bytes(),
          layout.block_bytes() / static_cast<std::size_t>(layout.block_size)};
}

std::unique_ptr<WeightMatrix> CpuBackend::load_matrix(const GgufTensor& tensor) {
  return std::make_unique<PackedMatrix>(tensor, pool_);
}

const float* CpuBackend::load_vector(std::span<const float> values) {
  return vectors_.emplace_back(values.begin(), values.end()).data();
}

float* CpuBackend::activations(int slot, std::size_t floats) {
  auto& slots = scratch_->activations;
  while (slots.size() <= static_cast<std::size_t>(slot)) slots.push_back(std::make_unique<Buffer<float>>());
  return slots[static_cast<std::size_t>(slot)]->reserve(floats);
}

void CpuBackend::begin_step(const StepBatch& batch, std::span<const Rope> ropes) {
  FOLIO_CHECK(num_ended_ - num_collected_ < kMaxStepsInFlight, "a step is collected before one more is begun");
  batch_ = &batch;
  projector_.begin_step();
  for (const BlockCopy& copy : batch.copies) cache_.copy_block(copy.from, copy.to);
  resolve_tokens(batch.tokens);
  ropes_.assign(ropes.begin(), ropes.end());
  scratch_->cosines.resize(ropes.size());
  scratch_->sines.resize(ropes.size());
  for (std::size_t r = 0; r < ropes.size(); ++r) find_angles(ropes[r], scratch_->cosines[r], scratch_->sines[r]);
  num_plans_ = 0;
  Results& results = results_[num_ended_ % kMaxStepsInFlight];
  results.samples.clear();
  results.scores.clear();
}

void CpuBackend::resolve_tokens(std::span<const TokenId> tokens) {
  tokens_.assign(tokens.begin(), tokens.end());
  for (TokenId& token : tokens_) {
    if (token >= 0) continue;
    const auto row = static_cast<std::size_t>(in_flight_row(token));
    FOLIO_CHECK(row < last_sampled_.size(), "a token in flight is a sample of the step before");
    token = std::max(last_sampled_[row], 0);
  }
}

void CpuBackend::find_angles(const Rope& rope, std::vector<float>& cosines, std::vector<float>& sines) {
  const auto count = static_cast<std::size_t>(rope.rotary_dim / 2);
  cosines.resize(batch_->tokens.size() * count);
  sines.resize(cosines.size());
  pool_.parallel_for(batch_->num_tokens(), kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) {
      for (std::size_t i = 0; i < count; ++i) {
        // The angle is rounded to float first, as the models' training code has it.
        const float angle = static_cast<float>(batch_->positions[t]) * rope.inverse_frequencies[i];
        cosines[t * count + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
        sines[t * count + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
      }
    }
  });
}

void CpuBackend::embed(const WeightMatrix& table, float scale, float* x) {
  const auto columns = static_cast<std::size_t>(table.depth());
  pool_.parallel_for(batch_->num_tokens(), kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) {
      float* row = x + t * columns;
      static_cast<const PackedMatrix&>(table).unpack_row(tokens_[t], {row, columns});
      if (scale != 1.0F) kernels_.scale(row, scale, row, columns);
    }
  });
}

void CpuBackend::norm_project(const float* x, Norm norm, std::span<const Projection> projections) {
  projector_.prepare(x, {}, batch_->num_tokens(), norm, projections, scratch_->input);
  projector_.project(scratch_->input, projections, false);
}

void CpuBackend::rotate_and_write_token(std::int32_t token, int layer, int rope, Norm q_norm, Norm k_norm,
                                        float query_scale, float* q, float* k, const float* v) {
  const KvCacheLayout& layout = cache_.layout();
  const std::int32_t dim = shape_.head_dim;
  const auto head_floats = static_cast<std::size_t>(dim);
  const Rope& spec = ropes_[static_cast<std::size_t>(rope)];
  const auto angles = product(token, spec.rotary_dim / 2);
  const float* cosines = scratch_->cosines[static_cast<std::size_t>(rope)].data() + angles;
  const float* sines = scratch_->sines[static_cast<std::size_t>(rope)].data() + angles;

  float* q_row = q + product(token, shape_.num_heads) * head_floats;
  for (int h = 0; h < shape_.num_heads; ++h, q_row += dim) {
    if (q_norm.weight != nullptr)
      kernels_.rms_norm(q_row, head_floats, q_norm.weight, q_norm.epsilon, 1, dim, q_row, head_floats);
    kernels_.rope(q_row, cosines, sines, spec.rotary_dim, spec.interleaved);
    kernels_.scale(q_row, query_scale, q_row, head_floats);
  }

  const std::int32_t slot = batch_->slots[static_cast<std::size_t>(token)];
  const BlockId block = slot / layout.block_size;
  const int offset = slot % layout.block_size;
  float* k_row = k + product(token, shape_.num_kv_heads) * head_floats;
  const float* v_row = v + product(token, shape_.num_kv_heads) * head_floats;
  for (int h = 0; h < shape_.num_kv_heads; ++h, k_row += dim, v_row += dim) {
    if (k_norm.weight != nullptr)
      kernels_.rms_norm(k_row, head_floats, k_norm.weight, k_norm.epsilon, 1, dim, k_row, head_floats);
    kernels_.rope(k_row, cosines, sines, spec.rotary_dim, spec.interleaved);
    const KvSlot to{cache_.data() + layout.key_group_offset(layer, block, h, offset / kKeyGroup),
                    cache_.data() + layout.value_group_offset(layer, block, h, offset / kKeyGroup),
                    layout.key_scales_at(),
                    layout.value_scales_at(),
                    layout.padded_dim(),
                    offset % kKeyGroup};
    kernels_.write_kv[static_cast<int>(layout.type)](k_row, v_row, dim, to);
  }
}

void CpuBackend::rope_write_kv(int layer, int rope, Norm q_norm, Norm k_norm, float query_scale, float* q, float* k,
                               const float* v) {
  constexpr float kLog2E = 1.4426950408889634F;  // attention weighs by powers of two
  pool_.parallel_for(batch_->num_tokens(), kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t t = begin; t < end; ++t) {
      rotate_and_write_token(static_cast<std::int32_t>(t), layer, rope, q_norm, k_norm, query_scale * kLog2E, q, k, v);
    }
  });
}

// Layers share few windows: the first layer of a step that has one makes its plan.
AttentionPlan& CpuBackend::plan_for(std::int32_t window) {
  for (std::size_t i = 0; i < num_plans_; ++i) {
    if (plans_[i].window == window) return plans_[i];
  }
  if (num_plans_ == plans_.size()) plans_.emplace_back();
  AttentionPlan& plan = plans_[num_plans_++];
  plan_attention(*batch_, shape_, window, pool_.num_threads(), plan);
  return plan;
}

void CpuBackend::attend(int layer, std::int32_t window, const float* q, float* out) {
  AttentionJob job{*batch_, shape_, cache_, kernels_, plan_for(window), layer, q, out, nullptr};
  job.stored = scratch_->partials.reserve(static_cast<std::size_t>(job.plan.num_stored) * job.row_floats());
  const auto workers = std::min<std::int64_t>(pool_.num_threads(), static_cast<std::int64_t>(job.plan.pieces.size()));
  pool_.parallel_for(workers, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (; begin < end; ++begin) scratch_->attention[static_cast<std::size_t>(worker)].run(job);
  });
}

void CpuBackend::project_add(const float* in, const WeightMatrix& matrix, Norm norm, float* x) {
  const Projection into{&matrix, nullptr, x};
  projector_.prepare(in, {}, batch_->num_tokens(), {}, {&into, 1}, scratch_->input);
  add_projected(scratch_->input, matrix, norm, x);
}

void CpuBackend::gate_up(const float* x, Norm norm, const WeightMatrix& gate, const WeightMatrix& up,
                         Activation activation, const WeightMatrix& down) {
  const Projection both[] = {{&gate, nullptr, nullptr}, {&up, nullptr, nullptr}};
  projector_.prepare(x, {}, batch_->num_tokens(), norm, both, scratch_->input);
  projector_.project_gated(scratch_->input, gate, up, activation, down, scratch_->gated);
}

void CpuBackend::down_add(const WeightMatrix& down, Norm norm, float* x) {
  add_projected(scratch_->gated, down, norm, x);
}

void CpuBackend::add_projected(const ActivationRows& in, const WeightMatrix& matrix, Norm norm, float* x) {
  if (norm.weight == nullptr) {
    const Projection into{&matrix, nullptr, x};
    projector_.project(in, {&into, 1}, true);
    return;
  }
  const std::int32_t columns = matrix.columns();
  float* projected = scratch_->projected.reserve(product(in.rows(), columns));
  const Projection into{&matrix, nullptr, projected};
  projector_.project(in, {&into, 1}, false);
  pool_.parallel_for(in.rows(), kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    float* from = projected + begin * columns;
    kernels_.rms_norm(from, static_cast<std::size_t>(columns), norm.weight, norm.epsilon, static_cast<int>(end - begin),
                      columns, from, static_cast<std::size_t>(columns));
    kernels_.add(from, x + begin * columns, product(end - begin, columns));
  });
}

Logits CpuBackend::logits(const float* x, Norm norm, const WeightMatrix& matrix, std::span<const std::int32_t> rows) {
  const auto num_rows = static_cast<std::int32_t>(rows.size());
  Logits result{nullptr, num_rows, matrix.columns()};
  if (num_rows == 0) return result;
  result.data = scratch_->logits.reserve(product(num_rows, matrix.columns()));
  const Projection into{&matrix, nullptr, result.data};
  projector_.prepare(x, rows, num_rows, norm, {&into, 1}, scratch_->input);
  projector_.project(scratch_->input, {&into, 1}, false);
  return result;
}

void CpuBackend::score(const Logits& logits, std::span<const ScoreRequest> scores) {
  std::vector<SampledToken>& out = results_[num_ended_ % kMaxStepsInFlight].scores;
  const std::size_t first = out.size();
  out.resize(first + scores.size());
  pool_.parallel_for(logits.rows, 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    SamplerScratch& scratch = scratch_->samplers[static_cast<std::size_t>(worker)];
    for (std::int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<std::size_t>(i);
      out[first + at] = score_row(scores[at], row_of(logits, static_cast<std::int32_t>(i)), scratch);
    }
  });
}

// Samples of one row (forks, side by side) are for one worker: each changes the row on its way.
void CpuBackend::sample(const Logits& logits, std::span<const SampleRequest> samples) {
  std::vector<SampledToken>& out = results_[num_ended_ % kMaxStepsInFlight].samples;
  out.resize(samples.size());
  pool_.parallel_for(static_cast<std::int64_t>(samples.size()), 1,
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       SamplerScratch& scratch = scratch_->samplers[static_cast<std::size_t>(worker)];
                       for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
                         const std::int32_t row = samples[i].logit_row;
                         if (i > 0 && samples[i - 1].logit_row == row) continue;
                         for (std::size_t k = i; k < samples.size() && samples[k].logit_row == row; ++k) {
                           out[k] = sample_row(samples[k], row_of(logits, row), scratch);
                         }
                       }
                     });
}

void CpuBackend::end_step() {
  last_sampled_.clear();
  for (const SampledToken& token : results_[num_ended_ % kMaxStepsInFlight].samples) last_sampled_.push_back(token.id);
  ++num_ended_;
  batch_ = nullptr;
}

void CpuBackend::collect(std::span<SampledToken> samples, std::span<SampledToken> scores) {
  FOLIO_CHECK(num_collected_ < num_ended_, "a step is ended before it is collected");
  Results& results = results_[num_collected_++ % kMaxStepsInFlight];
  FOLIO_CHECK(samples.size() == results.samples.size() && scores.size() == results.scores.size(), "a place for each");
  std::ranges::move(results.samples, samples.begin());
  std::ranges::move(results.scores, scores.begin());
}

void CpuBackend::read_logits(const Logits& logits, std::int32_t row, std::span<float> out) {
  std::ranges::copy(row_of(logits, row), out.begin());
}

}  // namespace folio::cpu
