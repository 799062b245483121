// The entry of libfolio_cuda.so: is there a device that the kernels run on, and the backend for it.
#include "engine/kernels/cuda_plugin.h"

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "engine/kernels/cuda/cuda_backend.h"
#include "engine/kernels/cuda/cuda_error.h"

namespace folio::cuda {
namespace {

constexpr int kOldestMajor = 8;  // sm_80: asynchronous copies into shared memory, bf16 in the tensor cores

// One line for each way in which a machine can be without a device.
DeviceFacts find_device() {
  int count = 0;
  const cudaError_t found = cudaGetDeviceCount(&count);
  if (found == cudaErrorInsufficientDriver) {
    throw std::runtime_error("no NVIDIA driver, or one that is too old for this build's CUDA " +
                             std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10));
  }
  if (found == cudaErrorNoDevice || (found == cudaSuccess && count == 0)) {
    throw std::runtime_error("this machine has no CUDA device, or this process may not use it");
  }
  check(found, "looking for CUDA devices");
  cudaDeviceProp device{};
  check(cudaGetDeviceProperties(&device, 0), "asking what CUDA device 0 is");
  if (device.major < kOldestMajor) {
    throw std::runtime_error(std::string(device.name) + " has compute capability " + std::to_string(device.major) +
                             "." + std::to_string(device.minor) + ", and the kernels want 8.0 or later");
  }
  return {device.name, device.multiProcessorCount, device.major, device.minor};
}

std::unique_ptr<Backend> make_backend(const DeviceRequest& request) {
  return std::make_unique<CudaBackend>(request, find_device(), true);
}

}  // namespace
}  // namespace folio::cuda

extern "C" const folio::CudaPlugin* folio_cuda_plugin() {
  static constexpr folio::CudaPlugin kPlugin{FOLIO_BACKEND_BUILD, folio::cuda::make_backend};
  return &kPlugin;
}
