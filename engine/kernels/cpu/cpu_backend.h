// The CPU backend: the kernels of one level over a thread pool. Work is cut over rows, columns, heads and key
// partitions, never over K, so that thread count and batch do not show in the results.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/attention_plan.h"
#include "engine/kernels/cpu/kernel_table.h"
#include "engine/kernels/cpu/projector.h"
#include "engine/sampling/sampler.h"

namespace folio::cpu {

class CpuBackend final : public Backend {
 public:
  // `cache` outlives the backend. isa: see cpu/isa.h (throws for a level that this CPU lacks).
  CpuBackend(const std::string& isa, ThreadPool& pool, const AttentionShape& shape, KvCache& cache);
  ~CpuBackend() override;

  const char* name() const override { return kernels_.name; }
  std::unique_ptr<WeightMatrix> load_matrix(const GgufTensor& tensor) override;
  float* activations(int slot, std::size_t floats) override;
  void begin_step(const StepBatch& batch, std::span<const Rope> ropes) override;
  void embed(const WeightMatrix& table, float scale, float* x) override;
  void norm_project(const float* x, Norm norm, std::span<const Projection> projections) override;
  void rope_write_kv(int layer, int rope, Norm q_norm, Norm k_norm, float query_scale, float* q, float* k,
                     const float* v) override;
  void attend(int layer, std::int32_t window, const float* q, float* out) override;
  void project_add(const float* in, const WeightMatrix& matrix, Norm norm, float* x) override;
  void gate_up(const float* x, Norm norm, const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
               const WeightMatrix& down) override;
  void down_add(const WeightMatrix& down, Norm norm, float* x) override;
  Logits logits(const float* x, Norm norm, const WeightMatrix& matrix, std::span<const std::int32_t> rows) override;
  void sample(const Logits& logits, std::span<const SampleRequest> samples, std::span<SampledToken> out) override;
  void score(const Logits& logits, std::span<const ScoreRequest> scores, std::span<SampledToken> out) override;

 private:
  struct Scratch;  // buffers that only grow

  void add_projected(const ActivationRows& in, const WeightMatrix& matrix, Norm norm, float* x);
  void rotate_and_write_token(std::int32_t token, int layer, int rope, Norm q_norm, Norm k_norm, float query_scale,
                              float* q, float* k, const float* v);
  AttentionPlan& plan_for(std::int32_t window);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  Projector projector_;
  const AttentionShape shape_;
  KvCache& cache_;
  const StepBatch* batch_ = nullptr;
  std::vector<Rope> ropes_;
  std::vector<AttentionPlan> plans_;  // one a window; the first num_plans_ are this step's
  std::size_t num_plans_ = 0;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace folio::cpu
