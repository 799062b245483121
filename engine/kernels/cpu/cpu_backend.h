// The CPU backend: the kernels of one level over a thread pool. Work is cut over rows, columns, heads and key
// partitions, never over K, so that thread count and batch do not show in the results. Operations are done when they
// return; two steps may wait to be collected all the same, so that what depth 2 asks can be tried on any machine.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/attention_plan.h"
#include "engine/kernels/cpu/kernel_table.h"
#include "engine/kernels/cpu/projector.h"
#include "engine/kernels/kv_cache.h"
#include "engine/sampling/sampler.h"

namespace folio::cpu {

class CpuBackend final : public Backend {
 public:
  // isa: see cpu/isa.h (throws for a level that this CPU lacks). Throws as KvCache does.
  CpuBackend(const std::string& isa, int num_threads, const AttentionShape& shape, const KvCacheLayout& cache);
  ~CpuBackend() override;

  const char* name() const override { return kernels_.name; }
  int num_threads() const override { return pool_.num_threads(); }
  int depth() const override { return 1; }
  KvCacheSize kv_cache() const override;
  std::unique_ptr<WeightMatrix> load_matrix(const GgufTensor& tensor) override;
  const float* load_vector(std::span<const float> values) override;
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
  void score(const Logits& logits, std::span<const ScoreRequest> scores) override;
  void sample(const Logits& logits, std::span<const SampleRequest> samples) override;
  void end_step() override;
  void collect(std::span<SampledToken> samples, std::span<SampledToken> scores) override;
  void read_logits(const Logits& logits, std::int32_t row, std::span<float> out) override;

  KvCache& cache() { return cache_; }

 private:
  struct Scratch;  // buffers that only grow
  struct Results {
    std::vector<SampledToken> samples, scores;
  };

  void resolve_tokens(std::span<const TokenId> tokens);
  void find_angles(const Rope& rope, std::vector<float>& cosines, std::vector<float>& sines);
  void add_projected(const ActivationRows& in, const WeightMatrix& matrix, Norm norm, float* x);
  void rotate_and_write_token(std::int32_t token, int layer, int rope, Norm q_norm, Norm k_norm, float query_scale,
                              float* q, float* k, const float* v);
  AttentionPlan& plan_for(std::int32_t window);

  const KernelTable& kernels_;
  ThreadPool pool_;
  KvCache cache_;
  Projector projector_;
  const AttentionShape shape_;
  std::vector<std::vector<float>> vectors_;  // of load_vector
  const StepBatch* batch_ = nullptr;         // of the step between begin_step and end_step
  std::vector<TokenId> tokens_;              // its own, all known
  // Of the steps that were ended and not collected, and of the one under way.
  std::array<Results, kMaxStepsInFlight> results_;
  std::size_t num_ended_ = 0, num_collected_ = 0;
  std::vector<TokenId> last_sampled_;  // by the step that was ended last
  std::vector<Rope> ropes_;
  std::vector<AttentionPlan> plans_;  // one a window; the first num_plans_ are this step's
  std::size_t num_plans_ = 0;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace folio::cpu
