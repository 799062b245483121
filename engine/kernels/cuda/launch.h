// How kernels are started, on the device and (in tests/simt) on the host, and what a failed call says.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>

#include "engine/kernels/cuda/cuda_error.h"
#include "engine/kernels/cuda/device.h"

namespace folio::cuda {

struct LaunchConfig {
  dim3 grid;                     // CTAs; one without any starts nothing
  int threads = 0;               // of a CTA: a multiple of 32
  std::size_t shared_bytes = 0;  // of a CTA
  cudaStream_t stream = nullptr;
};

#ifdef __CUDACC__
// Throws CudaError naming `name`.
template <class Params>
void launch(const char* name, void (*kernel)(Params), const LaunchConfig& config, const Params& params) {
  if (config.grid.x == 0 || config.grid.y == 0 || config.grid.z == 0) return;
  constexpr std::size_t kAlwaysThere = 48 * 1024;
  if (config.shared_bytes > kAlwaysThere) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(config.shared_bytes)),
          name);
  }
  kernel<<<config.grid, static_cast<unsigned>(config.threads), config.shared_bytes, config.stream>>>(params);
  check(cudaGetLastError(), name);
}
#else
template <class Params>
void launch(const char* name, void (*kernel)(Params), const LaunchConfig& config, const Params& params) {
  simt::submit([=] {
    const Params own = params;  // on the stack, which the runner knows to be no memory of the device
    const auto start = kernel;
    simt::run(name, config.grid, config.threads, config.shared_bytes, [&own, start] { start(own); });
  });
}
#endif

}  // namespace folio::cuda
