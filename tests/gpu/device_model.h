// Models on the device, and steps for them without an engine.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/kernels/cuda/memory_plan.h"
#include "engine/model/load_model.h"

namespace folio::gpu {

inline constexpr const char* kCutPath = "models/smollm2-cut.gguf";

// Of device 0. Throws cuda::CudaError.
cuda::DeviceFacts device_facts();

std::unique_ptr<Decoder> load_on_device(const GgufFile& file, const ModelOptions& options, bool use_graphs = true);

std::vector<TokenId> random_tokens(const Decoder& model, int count, std::uint32_t seed);

// Decode steps of sequences that lie in the cache one after another, from position `context` on. Greedy. Each step's
// tokens are the samples of the one before, unless `tokens` gives them.
class DecodeSteps {
 public:
  // Throws std::runtime_error if the cache has too few blocks for `max_steps`.
  DecodeSteps(Decoder& model, int sequences, int context, int max_steps);

  // tokens: one a sequence; empty: samples of the step started last.
  void start(std::vector<TokenId> tokens);
  std::vector<SampledToken> collect();
  // Seconds a step, all told, with as many in flight as the model likes; a few to warm up come first.
  double seconds_per_step(int steps);

 private:
  Decoder& model_;
  const int sequences_;
  const int blocks_each_;
  const SamplingParams greedy_;
  int position_;
  StepBatch batch_;
};

}  // namespace folio::gpu
