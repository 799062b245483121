// Which device there is, one "KEY VALUE" a line; compiled by scripts/gpu_check before anything else, since the build is
// for this device alone. Exit status 3: there is none.
#include <cuda_runtime_api.h>

#include <cstdio>

int main() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code != cudaSuccess || count == 0) {
    std::fprintf(stderr, "no CUDA device: %s\n", code == cudaSuccess ? "none is there" : cudaGetErrorString(code));
    return 3;
  }
  cudaDeviceProp device{};
  int driver = 0;
  if (cudaGetDeviceProperties(&device, 0) != cudaSuccess || cudaDriverGetVersion(&driver) != cudaSuccess) return 3;
  std::printf("name %s\narchitecture %d%d\nsms %d\nmemory %zu\ndriver_cuda %d.%d\ntoolkit %d.%d\n", device.name,
              device.major, device.minor, device.multiProcessorCount, device.totalGlobalMem, driver / 1000,
              driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  return 0;
}
