// Errors of the CUDA runtime and its libraries as exceptions.
#pragma once
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace folio::cuda {

class CudaError : public std::runtime_error {
 public:
  // "cudaMalloc of the KV cache: out of memory (cudaErrorMemoryAllocation)"
  CudaError(const std::string& operation, cudaError_t code)
      : std::runtime_error(operation + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")"),
        code_(code) {}
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

// Throws CudaError if a call failed. `operation` says what was being done.
inline void check(cudaError_t code, const char* operation) {
  if (code != cudaSuccess) throw CudaError(operation, code);
}

}  // namespace folio::cuda
