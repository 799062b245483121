// The seam between folio and its CUDA backend, a shared library of its own (libfolio_cuda.so), so that a CPU server
// neither links nor needs CUDA's libraries, which are large. Both sides are the same sources, built by the same
// compiler: plain C++ crosses. Whether that holds is told by FOLIO_BACKEND_BUILD, a string compiled into both: folio's
// version, a hash of the headers that the two share, and the compiler (engine/kernels/CMakeLists.txt).
//
// The library exports one function, folio_cuda_plugin. Weights come through Backend::load_matrix and load_vector, as
// for any backend; the library never opens the model file.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/kernels/backend.h"

namespace folio {

struct KvCacheRequest {
  std::string dtype = "f16";  // as --kv-dtype says
  std::int32_t block_size = 16;
  // At most one of these two is given; neither: a share of the device's memory that the backend chooses, but no more
  // than useful_blocks.
  std::int64_t num_blocks = 0;
  std::uint64_t bytes = 0;
  std::int64_t useful_blocks = 0;  // that the most sequences can fill, each as long as the context
};

// All that a backend must know before the first weight is loaded.
struct DeviceRequest {
  AttentionShape attention;
  std::int32_t num_layers = 0;
  std::int32_t hidden_size = 0;
  std::int32_t ff_size = 0;
  std::int32_t vocab_size = 0;
  std::int32_t max_context = 0;
  std::int32_t max_num_seqs = 0;        // sequences of a step
  std::int32_t max_batch_tokens = 0;    // tokens of a step
  std::vector<std::int32_t> windows;    // of the layers, each once; 0: none
  std::span<const GgufTensor> tensors;  // of the file: they are loaded after the cache took its share
  KvCacheRequest kv_cache;
  bool deterministic = false;  // the numerics contract, as the CPU keeps it always (docs/numerics.md)
};

struct CudaPlugin {
  const char* build;  // FOLIO_BACKEND_BUILD; first: it is read before the rest is trusted
  // Throws std::runtime_error: no device, one that is too old, an option that it cannot keep, too little memory (how
  // much was wanted, how much fits).
  std::unique_ptr<Backend> (*make_backend)(const DeviceRequest& request);
};

inline constexpr const char* kCudaLibrary = "libfolio_cuda.so";

}  // namespace folio

extern "C" const folio::CudaPlugin* folio_cuda_plugin();
