// The CUDA backend: the operations of a decoder on one NVIDIA GPU. Everything of a step is put into one stream and the
// host goes on; what a step reads of the host is written to pinned memory of that step, and nobody waits but for the
// event at a step's end: except a step that the host samples or scores in part (step_results.h).
//
// Sums that the interface separates are put together here where one pass over memory does both: an addition to the
// residual stream that has a norm of its own waits (pending_) for the norm of the next product.
#pragma once
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cuda/attention.h"
#include "engine/kernels/cuda/attention_plan.h"
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/cuda/device_memory.h"
#include "engine/kernels/cuda/kv_layout.h"
#include "engine/kernels/cuda/memory_plan.h"
#include "engine/kernels/cuda/norm_rows.h"
#include "engine/kernels/cuda/products.h"
#include "engine/kernels/cuda/step_arrays.h"
#include "engine/kernels/cuda/step_graphs.h"
#include "engine/kernels/cuda/step_results.h"
#include "engine/kernels/cuda_plugin.h"

namespace folio::cuda {

class CudaBackend final : public Backend {
 public:
  // use_graphs: decode steps are captured and replayed. Throws std::runtime_error: an option that the device or the
  // kernels do not have, too little memory.
  CudaBackend(const DeviceRequest& request, DeviceFacts device, bool use_graphs);
  ~CudaBackend() override;

  const char* name() const override { return name_.c_str(); }
  int num_threads() const override { return 0; }
  int depth() const override { return 2; }
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

  const KvLayout& layout() const { return layout_; }
  void* cache() const { return cache_.get(); }

 private:
  // A step that was begun and not collected: what the device reads of the host, and what it gives back.
  struct Flight {
    Flight(std::size_t array_bytes, std::int32_t max_samples) : arrays(array_bytes), results(max_samples) {}
    PinnedMemory arrays;
    StepResults results;
  };
  struct Pending {
    float* x = nullptr;  // null: nothing waits
    DeviceNorm norm;
  };

  StepShape largest_shape() const;
  StepShape decode_shape(std::int32_t sequences) const;
  StepShape shape_of(const StepBatch& batch) const;
  void upload(const StepBatch& batch);
  void copy_blocks_of(const StepBatch& batch);
  void make_step_angles(std::span<const Rope> ropes);
  float2* angles_of(int rope) const;  // [tokens][rotary_dim / 2]
  void norm_into(const float* x, Norm norm, std::int32_t columns, const RowOutputs& out);
  void add_product(const RowOutputs& in, const WeightMatrix& matrix, Norm norm, float* x);
  bool is_replaying() const { return graphs_.mode() == StepGraphs::Mode::kReplay; }
  template <class T>
  T* on_step(std::size_t offset) const {
    return reinterpret_cast<T*>(arrays_.get<std::byte>() + offset);
  }
  Flight& flight_of(std::int64_t step) { return *flights_[static_cast<std::size_t>(step) % flights_.size()]; }

  const StepSizes sizes_;
  const bool use_graphs_;
  const bool keep_quant_;
  const AttentionShape shape_of_heads_;
  const std::string name_;
  Stream stream_;
  ThreadPool loaders_;
  KvLayout layout_;
  const std::vector<AttentionSetup> setups_;  // one a window
  std::size_t array_bytes_ = 0;

  // On the device, each for the largest step: a graph has their addresses in it.
  ProductInput input_, gated_;
  Products products_;
  DeviceMemory arrays_, sampled_, sample_workspace_, partials_, projected_, gate_, up_, logits_, angles_;
  std::map<int, DeviceMemory> activations_;
  std::vector<DeviceMemory> vectors_;
  DeviceMemory cache_;

  // The step under way.
  bool is_open_ = false;
  StepGraphs graphs_;
  std::vector<AttentionPlan> plans_;  // one a window
  std::vector<SampleRow> sample_rows_;
  StepShape shape_;  // with padding
  StepLayout at_{StepShape()};
  std::vector<Rope> ropes_;
  std::int32_t num_tokens_ = 0;  // of the batch, without padding
  std::int32_t num_scored_ = 0;  // rows whose logits were asked for so far
  RowOutputs gated_rows_;
  Pending pending_;

  std::array<std::unique_ptr<Flight>, kMaxStepsInFlight> flights_;
  std::int64_t num_ended_ = 0;
  std::int64_t num_collected_ = 0;
};

}  // namespace folio::cuda
