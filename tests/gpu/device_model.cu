#include "tests/gpu/device_model.h"

#include <chrono>
#include <random>
#include <stdexcept>

#include "engine/kernels/cuda/cuda_backend.h"

namespace folio::gpu {

cuda::DeviceFacts device_facts() {
  cudaDeviceProp device{};
  cuda::check(cudaGetDeviceProperties(&device, 0), "asking what CUDA device 0 is");
  return {device.name, device.multiProcessorCount, device.major, device.minor};
}

std::unique_ptr<Decoder> load_on_device(const GgufFile& file, const ModelOptions& options, bool use_graphs) {
  DecoderConfig config = read_config(file);
  const std::int32_t max_context = std::min(config.context_length, 2048);
  auto backend = std::make_unique<cuda::CudaBackend>(device_request(file, config, options, max_context), device_facts(),
                                                     use_graphs);
  return std::make_unique<Decoder>(file, std::move(config), max_context, std::move(backend));
}

std::vector<TokenId> random_tokens(const Decoder& model, int count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(static_cast<std::size_t>(count));
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % static_cast<unsigned>(model.vocab_size()));
  return tokens;
}

DecodeSteps::DecodeSteps(Decoder& model, int sequences, int context, int max_steps)
    : model_(model),
      sequences_(sequences),
      blocks_each_((context + max_steps + model.block_size() - 1) / model.block_size()),
      greedy_{.temperature = 0.0F},
      position_(context) {
  if (blocks_each_ * sequences > model.num_blocks()) throw std::runtime_error("the check's KV cache is too small");
}

void DecodeSteps::start(std::vector<TokenId> tokens) {
  const int block_size = model_.block_size();
  batch_.clear();
  for (int s = 0; s < sequences_; ++s) {
    const BlockId first = 1 + s * blocks_each_;
    const int blocks = position_ / block_size + 1;
    batch_.tokens.push_back(tokens.empty() ? in_flight_token(s) : tokens[static_cast<std::size_t>(s)]);
    batch_.positions.push_back(position_);
    batch_.slots.push_back((first + position_ / block_size) * block_size + position_ % block_size);
    batch_.query_start.push_back(s + 1);
    batch_.context_len.push_back(position_ + 1);
    for (int b = 0; b < blocks; ++b) batch_.block_ids.push_back(first + b);
    batch_.block_start.push_back(static_cast<std::int32_t>(batch_.block_ids.size()));
    batch_.logit_rows.push_back(s);
    SampleRequest sample;
    sample.logit_row = s;
    sample.params = &greedy_;
    sample.position = position_ + 1;
    batch_.samples.push_back(sample);
  }
  ++position_;
  model_.start(batch_);
}

std::vector<SampledToken> DecodeSteps::collect() {
  std::vector<SampledToken> samples(static_cast<std::size_t>(sequences_));
  model_.collect(samples, {});
  return samples;
}

double DecodeSteps::seconds_per_step(int steps) {
  using Clock = std::chrono::steady_clock;
  constexpr int kWarmUp = 4;
  Clock::time_point begin;
  start(std::vector<TokenId>(static_cast<std::size_t>(sequences_), 1));
  for (int i = 1; i < kWarmUp + steps; ++i) {
    start({});
    collect();
    if (i == kWarmUp - 1) begin = Clock::now();  // one is in flight here, and at the end
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  collect();
  return seconds / steps;
}

}  // namespace folio::gpu
