// A libfolio_cuda.so for tests, on the host: it computes nothing, so that what crosses the seam of
// engine/kernels/cuda_plugin.h can be tried without a device. The token behind position p is p % vocabulary. At a
// position past kLostAt the device is lost.
#include <algorithm>
#include <array>
#include <deque>
#include <stdexcept>
#include <vector>

#include "engine/kernels/cuda_plugin.h"
#include "engine/kernels/device_lost.h"

namespace folio {
namespace {

constexpr std::int32_t kLostAt = 100;

class ToyMatrix final : public WeightMatrix {
 public:
  explicit ToyMatrix(const GgufTensor& tensor)
      : WeightMatrix(static_cast<std::int32_t>(tensor.shape[0]), static_cast<std::int32_t>(tensor.shape[1])) {}
};

class ToyBackend final : public Backend {
 public:
  explicit ToyBackend(const DeviceRequest& request)
      : cache_{static_cast<std::int32_t>(request.kv_cache.num_blocks > 0 ? request.kv_cache.num_blocks
                                                                         : request.kv_cache.useful_blocks),
               request.kv_cache.block_size, 0, 0} {}

  const char* name() const override { return "toy"; }
  int num_threads() const override { return 0; }
  int depth() const override { return kMaxStepsInFlight; }
  KvCacheSize kv_cache() const override { return cache_; }
  std::unique_ptr<WeightMatrix> load_matrix(const GgufTensor& tensor) override {
    return std::make_unique<ToyMatrix>(tensor);
  }
  const float* load_vector(std::span<const float> values) override {
    return vectors_.emplace_back(values.begin(), values.end()).data();
  }
  float* activations(int slot, std::size_t floats) override {
    auto& memory = activations_.at(static_cast<std::size_t>(slot));
    memory.resize(std::max(memory.size(), floats));
    return memory.data();
  }
  void begin_step(const StepBatch& batch, std::span<const Rope>) override {
    for (const std::int32_t position : batch.positions) {
      if (position > kLostAt) throw DeviceLost("the toy fell off the table");
    }
    ids_.clear();
  }
  void embed(const WeightMatrix&, float, float*) override {}
  void norm_project(const float*, Norm, std::span<const Projection>) override {}
  void rope_write_kv(int, int, Norm, Norm, float, float*, float*, const float*) override {}
  void attend(int, std::int32_t, const float*, float*) override {}
  void project_add(const float*, const WeightMatrix&, Norm, float*) override {}
  void gate_up(const float*, Norm, const WeightMatrix&, const WeightMatrix&, Activation, const WeightMatrix&) override {
  }
  void down_add(const WeightMatrix&, Norm, float*) override {}
  Logits logits(const float*, Norm, const WeightMatrix& matrix, std::span<const std::int32_t> rows) override {
    return {nullptr, static_cast<std::int32_t>(rows.size()), matrix.columns()};
  }
  void score(const Logits&, std::span<const ScoreRequest>) override {
    throw std::runtime_error("the toy scores no prompts");
  }
  void sample(const Logits& logits, std::span<const SampleRequest> samples) override {
    for (const SampleRequest& sample : samples) {
      ids_.push_back(static_cast<TokenId>(sample.position % logits.vocab_size));
    }
  }
  void end_step() override { ended_.push_back(ids_); }
  void collect(std::span<SampledToken> samples, std::span<SampledToken>) override {
    for (std::size_t i = 0; i < samples.size(); ++i) samples[i].id = ended_.front()[i];
    ended_.pop_front();
  }
  void read_logits(const Logits&, std::int32_t, std::span<float> out) override { std::ranges::fill(out, 0.0F); }

 private:
  const KvCacheSize cache_;
  std::deque<std::vector<float>> vectors_;
  std::array<std::vector<float>, 8> activations_;  // by slot
  std::vector<TokenId> ids_;                       // of the step under way
  std::deque<std::vector<TokenId>> ended_;         // and not collected
};

std::unique_ptr<Backend> make_backend(const DeviceRequest& request) {
  if (request.kv_cache.dtype == "f32") throw std::runtime_error("--kv-dtype f32: the toy has no such cache");
  return std::make_unique<ToyBackend>(request);
}

}  // namespace
}  // namespace folio

extern "C" const folio::CudaPlugin* folio_cuda_plugin() {
  static constexpr folio::CudaPlugin kPlugin{FOLIO_BACKEND_BUILD, folio::make_backend};
  return &kPlugin;
}
