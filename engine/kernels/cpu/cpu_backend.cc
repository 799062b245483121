#include "engine/kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "base/check.h"
#include "engine/kernels/cpu/attention_worker.h"
#include "engine/kernels/cpu/isa.h"
#include "engine/kernels/cpu/packed_matrix.h"

namespace folio::cpu {
namespace {

constexpr std::int64_t kRowGrain = 8;  // rows of a cheap operation given out at once
constexpr int kRowsPerItem = 192;      // of a matmul: activations of an item stay in the second-level cache
constexpr int kItemsPerThread = 6;     // pieces of a one-row matmul: the faster core takes more of them

std::size_t product(std::int64_t a, std::int64_t b) {
  return static_cast<std::size_t>(a) * static_cast<std::size_t>(b);
}

// Memory that only grows, on cache lines.
template <class T>
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { std::free(data_); }
  T* reserve(std::size_t count) {
    if (count <= size_) return data_;
    std::free(data_);
    size_ = 0;
    const std::size_t bytes = (count * sizeof(T) + 127) / 64 * 64;  // a full vector load past the end stays inside
    data_ = static_cast<T*>(std::aligned_alloc(64, bytes));
    if (data_ == nullptr) throw std::bad_alloc();
    size_ = count;
    return data_;
  }
  T* data() const { return data_; }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

const PackedMatrix& packed(const WeightMatrix& matrix) {
  return static_cast<const PackedMatrix&>(matrix);
}

}  // namespace

struct CpuBackend::Scratch {
  std::vector<std::unique_ptr<Buffer<float>>> activations;
  Buffer<float> normed, projected, logit_input, logits, partials;
  Buffer<std::int8_t> quants;
  Buffer<float> scales;
  Buffer<std::int32_t> sums;
  std::vector<std::vector<float>> cosines, sines;  // [rope][num_tokens * rotary_dim / 2]
  std::vector<AttentionWorker> attention;          // one a worker
  std::vector<SamplerScratch> samplers;
};

CpuBackend::CpuBackend(const std::string& isa, ThreadPool& pool, const AttentionShape& shape, KvCache& cache)
    : kernels_(select_kernels(isa)), pool_(pool), shape_(shape), cache_(cache), scratch_(std::make_unique<Scratch>()) {
  scratch_->attention.resize(static_cast<std::size_t>(pool.num_threads()));
  scratch_->samplers.resize(static_cast<std::size_t>(pool.num_threads()));
}

CpuBackend::~CpuBackend() = default;

std::unique_ptr<WeightMatrix> CpuBackend::load_matrix(const GgufTensor& tensor) {
  return std::make_unique<PackedMatrix>(tensor, pool_);
}

float* CpuBackend::activations(int slot, std::size_t floats) {
  auto& slots = scratch_->activations;
  while (slots.size() <= static_cast<std::size_t>(slot)) slots.push_back(std::make_unique<Buffer<float>>());
  return slots[static_cast<std::size_t>(slot)]->reserve(floats);
}

void CpuBackend::begin_step(const StepBatch& batch, std::span<const Rope> ropes) {
  batch_ = &batch;
  for (const BlockCopy& copy : batch.copies) cache_.copy_block(copy.from, copy.to);
  ropes_.assign(ropes.begin(), ropes.end());
  scratch_->cosines.resize(ropes.size());
  scratch_->sines.resize(ropes.size());
  for (std::size_t r = 0; r < ropes.size(); ++r) {
    const auto frequencies = ropes[r].inverse_frequencies;
    auto& cosines = scratch_->cosines[r];
    auto& sines = scratch_->sines[r];
    cosines.resize(batch.tokens.size() * frequencies.size());
    sines.resize(cosines.size());
    pool_.parallel_for(batch.num_tokens(), kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
      for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) {
        for (std::size_t i = 0; i < frequencies.size(); ++i) {
          // The angle is rounded to float first, as the models' training code has it.
          const float angle = static_cast<float>(batch.positions[t]) * frequencies[i];
          cosines[t * frequencies.size() + i] = static_cast<float>(std::cos(static_cast<double>(angle)));
          sines[t * frequencies.size() + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
        }
      }
    });
  }
  num_plans_ = 0;
}

void CpuBackend::embed(const WeightMatrix& table, float scale, float* x) {
  const auto columns = static_cast<std::size_t>(table.depth());
  pool_.parallel_for(batch_->num_tokens(), kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (auto t = static_cast<std::size_t>(begin); t < static_cast<std::size_t>(end); ++t) {
      float* row = x + t * columns;
      packed(table).unpack_row(batch_->tokens[t], {row, columns});
      if (scale != 1.0F) kernels_.scale(row, scale, row, columns);
    }
  });
}

void CpuBackend::project(const float* x, int rows, std::span<const Projection> projections, bool add) {
  const std::int32_t depth = projections[0].matrix->depth();
  MatmulArgs shared{};
  shared.x = x;
  shared.add = add;
  const bool any_integer = std::any_of(projections.begin(), projections.end(),
                                       [](const Projection& p) { return packed(*p.matrix).is_integer(); });
  if (any_integer) {
    shared.quantized = {scratch_->quants.reserve(product(rows, depth)),
                        scratch_->scales.reserve(product(rows, depth / kQuantGroup)),
                        scratch_->sums.reserve(product(rows, depth / 16))};
    pool_.parallel_for(rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
      const QuantizedRows out{shared.quantized.q + begin * depth,
                              shared.quantized.scales + begin * (depth / kQuantGroup),
                              shared.quantized.sums + begin * (depth / 16)};
      kernels_.quantize_rows(x + begin * depth, static_cast<std::size_t>(depth), static_cast<int>(end - begin), depth,
                             out);
    });
  }

  // Items: for each projection, row blocks x runs of panels.
  struct Part {
    MatmulArgs args;
    MatmulFn fn;
    int panels;
    std::int64_t first_item;
  };
  constexpr std::size_t kMaxParts = 4;
  FOLIO_CHECK(projections.size() <= kMaxParts, "too many projections share an input");
  Part parts[kMaxParts];
  const std::int64_t row_blocks = (rows + kRowsPerItem - 1) / kRowsPerItem;
  std::int64_t total_panels = 0;
  for (const Projection& p : projections) total_panels += packed(*p.matrix).num_panels();
  const std::int64_t pieces = static_cast<std::int64_t>(pool_.num_threads()) * kItemsPerThread;
  const auto run = static_cast<int>(std::clamp<std::int64_t>((total_panels / pieces + 3) / 4 * 4, 4, 64));
  std::int64_t items = 0;
  for (std::size_t i = 0; i < projections.size(); ++i) {
    const Projection& p = projections[i];
    Part& part = parts[i];
    part.args = shared;
    packed(*p.matrix).fill(part.args);
    part.args.out = p.out;
    part.args.out_stride = static_cast<std::size_t>(p.matrix->columns());
    part.args.bias = p.bias;
    part.fn = kernels_.matmul[static_cast<int>(packed(*p.matrix).format())];
    part.panels = packed(*p.matrix).num_panels();
    part.first_item = items;
    items += row_blocks * ((part.panels + run - 1) / run);
  }
  pool_.parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t item = begin; item < end; ++item) {
      std::size_t i = projections.size() - 1;
      while (item < parts[i].first_item) --i;
      const Part& part = parts[i];
      const std::int64_t runs = (part.panels + run - 1) / run;
      const std::int64_t local = item - part.first_item;
      const int panel = static_cast<int>(local % runs) * run;
      const int row = static_cast<int>(local / runs) * kRowsPerItem;
      part.fn(part.args, panel, std::min(panel + run, part.panels), row, std::min(row + kRowsPerItem, rows));
    }
  });
}

void CpuBackend::norm_project(const float* x, Norm norm, std::span<const Projection> projections) {
  const std::int32_t rows = batch_->num_tokens();
  const std::int32_t depth = projections[0].matrix->depth();
  const float* input = x;
  if (norm.weight != nullptr) {
    float* normed = scratch_->normed.reserve(product(rows, depth));
    pool_.parallel_for(rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
      kernels_.rms_norm(x + begin * depth, static_cast<std::size_t>(depth), norm.weight, norm.epsilon,
                        static_cast<int>(end - begin), depth, normed + begin * depth, static_cast<std::size_t>(depth));
    });
    input = normed;
  }
  project(input, rows, projections, false);
}

void CpuBackend::rotate_and_write_token(std::int32_t token, int layer, int rope, Norm q_norm, Norm k_norm,
                                        float query_scale, float* q, float* k, const float* v) {
  const KvCacheLayout& layout = cache_.layout();
  const std::int32_t dim = shape_.head_dim;
  const auto head_floats = static_cast<std::size_t>(dim);
  const Rope& spec = ropes_[static_cast<std::size_t>(rope)];
  const auto angles = static_cast<std::size_t>(token) * spec.inverse_frequencies.size();
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
  const std::int32_t rows = batch_->num_tokens();
  const std::int32_t columns = matrix.columns();
  if (norm.weight == nullptr) {
    const Projection into{&matrix, nullptr, x};
    project(in, rows, {&into, 1}, true);
    return;
  }
  float* projected = scratch_->projected.reserve(product(rows, columns));
  const Projection into{&matrix, nullptr, projected};
  project(in, rows, {&into, 1}, false);
  pool_.parallel_for(rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    float* from = projected + begin * columns;
    kernels_.rms_norm(from, static_cast<std::size_t>(columns), norm.weight, norm.epsilon, static_cast<int>(end - begin),
                      columns, from, static_cast<std::size_t>(columns));
    kernels_.add(from, x + begin * columns, product(end - begin, columns));
  });
}

void CpuBackend::gate(Activation activation, const float* gate, const float* up, std::int32_t columns, float* out) {
  const auto fn = activation == Activation::kSilu ? kernels_.gate_silu : kernels_.gate_gelu;
  pool_.parallel_for(batch_->num_tokens(), kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    fn(gate + begin * columns, up + begin * columns, out + begin * columns, product(end - begin, columns));
  });
}

Logits CpuBackend::logits(const float* x, Norm norm, const WeightMatrix& matrix) {
  const auto rows = static_cast<std::int32_t>(batch_->logit_rows.size());
  Logits result{nullptr, rows, matrix.columns()};
  if (rows == 0) return result;
  const std::int32_t depth = matrix.depth();
  float* input = scratch_->logit_input.reserve(product(rows, depth));
  pool_.parallel_for(rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = x + product(batch_->logit_rows[static_cast<std::size_t>(r)], depth);
      kernels_.rms_norm(row, static_cast<std::size_t>(depth), norm.weight, norm.epsilon, 1, depth, input + r * depth,
                        static_cast<std::size_t>(depth));
    }
  });
  result.data = scratch_->logits.reserve(product(rows, matrix.columns()));
  const Projection into{&matrix, nullptr, result.data};
  project(input, rows, {&into, 1}, false);
  return result;
}

// Samples of one row (forks, side by side) are for one worker: each changes the row on its way.
void CpuBackend::sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) {
  pool_.parallel_for(static_cast<std::int64_t>(samples.size()), 1,
                     [&](std::int64_t begin, std::int64_t end, int worker) {
                       SamplerScratch& scratch = scratch_->samplers[static_cast<std::size_t>(worker)];
                       for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
                         const std::int32_t row = samples[i].logit_row;
                         if (i > 0 && samples[i - 1].logit_row == row) continue;
                         for (std::size_t k = i; k < samples.size() && samples[k].logit_row == row; ++k) {
                           out[k] = sample_row(samples[k], logits.row(row), scratch);
                         }
                       }
                     });
}

}  // namespace folio::cpu
