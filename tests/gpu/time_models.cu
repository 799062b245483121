// Decode steps of whole models, and tokens per second: plans, uploads and collected samples included, no engine.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/kernels/cuda/cuda_error.h"
#include "tests/gpu/device_model.h"
#include "tests/gpu/parts.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/temp_folder.h"

namespace folio::gpu {
namespace {

constexpr int kContext = 512;
constexpr int kSteps = 50;

ModelOptions timed_options(const std::string& kv_dtype) {
  ModelOptions options;
  options.kv_dtype = kv_dtype;
  options.kv_blocks = 256 * ((kContext + 2 * kSteps) / 16 + 1);
  options.max_num_seqs = 256;
  options.max_batch_tokens = 512;
  return options;
}

void time_decode(Report& report, const std::string& name, const GgufFile& file, bool use_graphs) {
  const auto model = load_on_device(file, timed_options("f16"), use_graphs);
  for (const int sequences : {1, 32, 256}) {
    DecodeSteps steps(*model, sequences, kContext, kSteps + 8);
    const double seconds = steps.seconds_per_step(kSteps);
    const std::string what =
        name + " B " + std::to_string(sequences) + (use_graphs ? " with graphs" : " without graphs");
    report.figure(what + ", step", seconds * 1e3, "ms");
    if (use_graphs) report.figure(what + ", tokens", sequences / seconds, "/s");
  }
}

// Weights of the same magnitude as a model's, drawn by a generator that is faster than memory.
std::string random_q4_0(std::uint64_t depth, std::uint64_t columns, std::uint64_t& state) {
  constexpr std::size_t kBlock = 18;
  std::string data(depth / 32 * columns * kBlock, '\0');
  const std::uint16_t scale = float_to_half(1.0F / std::sqrt(static_cast<float>(depth)) / 4.6F);
  for (std::size_t at = 0; at < data.size(); at += kBlock) {
    std::memcpy(data.data() + at, &scale, 2);
    for (std::size_t word = 0; word < 2; ++word) {
      state ^= state << 13U;
      state ^= state >> 7U;
      state ^= state << 17U;
      std::memcpy(data.data() + at + 2 + 8 * word, &state, 8);
    }
  }
  return data;
}

// The shape of Llama 3 8B with some of its layers, as a file.
std::string write_large(const testing::TempFolder& folder, std::uint32_t layers) {
  constexpr std::uint32_t kHidden = 4096, kFf = 14336, kVocab = 128256, kKv = 1024;
  testing::GgufWriter writer;
  std::uint64_t state = 88172645463325252U;
  writer.add_string("general.architecture", "llama");
  for (const auto& [key, value] : {std::pair{"block_count", layers},
                                   {"embedding_length", kHidden},
                                   {"feed_forward_length", kFf},
                                   {"context_length", 8192U},
                                   {"attention.head_count", 32U},
                                   {"attention.head_count_kv", 8U}}) {
    writer.add_uint32(std::string("llama.") + key, value);
  }
  writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  writer.add_float32("llama.rope.freq_base", 500000.0F);
  const std::vector<float> ones(kHidden, 1.0F);
  const auto matrix = [&](const std::string& name, std::uint64_t depth, std::uint64_t columns) {
    writer.add_tensor(name, {depth, columns}, TensorType::kQ4_0, random_q4_0(depth, columns, state));
  };
  matrix("token_embd.weight", kHidden, kVocab);
  writer.add_f32_tensor("output_norm.weight", {kHidden}, ones);
  matrix("output.weight", kHidden, kVocab);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const std::string at = "blk." + std::to_string(layer) + '.';
    writer.add_f32_tensor(at + "attn_norm.weight", {kHidden}, ones);
    matrix(at + "attn_q.weight", kHidden, kHidden);
    matrix(at + "attn_k.weight", kHidden, kKv);
    matrix(at + "attn_v.weight", kHidden, kKv);
    matrix(at + "attn_output.weight", kHidden, kHidden);
    writer.add_f32_tensor(at + "ffn_norm.weight", {kHidden}, ones);
    matrix(at + "ffn_gate.weight", kHidden, kFf);
    matrix(at + "ffn_up.weight", kHidden, kFf);
    matrix(at + "ffn_down.weight", kFf, kHidden);
  }
  return folder.write("large.gguf", writer.bytes());
}

}  // namespace

void time_cut_model(Report& report) {
  const GgufFile file(kCutPath);
  time_decode(report, "smollm2-cut", file, true);
  time_decode(report, "smollm2-cut", file, false);
}

// A quarter of its layers: a file of 1.6 GB, made and read within the part's time.
void time_large_model(Report& report) {
  constexpr std::uint32_t kLayers = 8;
  constexpr std::size_t kWanted = std::size_t{24} << 30U;
  std::size_t free = 0;
  std::size_t total = 0;
  cuda::check(cudaMemGetInfo(&free, &total), "asking how much memory is free");
  if (free < kWanted) {
    return report.left_out("llama-3-8b's shape", "it wants 24 GiB of the device, and " +
                                                     number(static_cast<double>(free >> 30U)) + " GiB are free");
  }
  const testing::TempFolder folder;
  const GgufFile file(write_large(folder, kLayers));
  time_decode(report, "8 of 32 layers of llama-3-8b's shape, Q4_0,", file, true);
}

}  // namespace folio::gpu
