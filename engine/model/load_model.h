// From a model file and options to a model ready to run: configuration, KV cache size, backend, weights.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "engine/gguf/gguf_file.h"
#include "engine/kernels/cuda_plugin.h"
#include "engine/model/decoder.h"

namespace folio {

struct ModelOptions {
  std::string device = "cpu";         // cpu, cuda
  bool deterministic = false;         // on cuda: answers do not depend on the batch; on the CPU they never do
  std::string isa = "auto";           // auto, avx512bf16, avx512, avx2, scalar
  int num_threads = 0;                // 0: available_cores()
  std::string kv_dtype = "f16";       // f16, bf16, int8, f32
  std::int32_t block_size = 16;       // a multiple of 16, at most 256
  std::int64_t kv_blocks = 0;         // 0: from kv_memory_bytes
  std::uint64_t kv_memory_bytes = 0;  // 0: 40 % of the memory this process may use
  std::int32_t max_context = 0;       // 0: the file's; larger than the file's is refused
  std::int32_t max_num_seqs =
      64;  // with max_context: more blocks than they can fill are not taken unless asked by kv_blocks
  std::int32_t max_batch_tokens = 512;  // of a step
};

struct ModelInfo {
  std::string architecture;
  std::string name;     // general.name, or the file's name
  std::string dtype;    // the most common tensor format, by bytes
  std::string isa;      // the level that runs; on a device its name and kind
  int num_threads = 0;  // of a step; on a device none
  std::string kv_dtype;
  std::int32_t block_size = 0;
  std::int32_t num_blocks = 0;
  std::uint64_t kv_bytes = 0;  // of the cache
  std::uint64_t kv_bytes_per_token = 0;
  std::int32_t max_context = 0;
  std::int32_t vocab_size = 0;
};

struct LoadedModel {
  std::unique_ptr<Decoder> model;
  ModelInfo info;
};

// Throws GgufError (the file) or std::runtime_error (an option, by its flag's name; the device). The file may be closed
// afterwards.
LoadedModel load_model(const GgufFile& file, const ModelOptions& options);

// What load_model asks a device's backend for. Throws as load_model.
DeviceRequest device_request(const GgufFile& file, const DecoderConfig& config, const ModelOptions& options,
                             std::int32_t max_context);

// Bytes this process may still use: the smaller of the machine's available memory and the cgroup's rest.
std::uint64_t available_memory();

}  // namespace folio
