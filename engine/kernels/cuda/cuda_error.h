// Errors of the CUDA runtime and its libraries as exceptions.
#pragma once
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

#include "engine/kernels/device_lost.h"

namespace folio::cuda {

class CudaError : public std::runtime_error {
 public:
  // "cudaMalloc: out of memory (cudaErrorMemoryAllocation)"
  CudaError(const std::string& operation, cudaError_t code)
      : std::runtime_error(operation + ": " + cudaGetErrorString(code) + " (" + cudaGetErrorName(code) + ")") {}
};

// After one of these, every call of this process fails: what CUDA calls a sticky error, or no device any more.
inline bool loses_device(cudaError_t code) {
  switch (code) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorIllegalInstruction:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

// Throws if a call failed: DeviceLost or CudaError. `operation` says what was being done.
inline void check(cudaError_t code, const char* operation) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // the runtime would report it once more, to the next launch
  if (loses_device(code)) {
    throw DeviceLost(std::string("the CUDA device is lost: ") + operation + ": " + cudaGetErrorString(code) + " (" +
                     cudaGetErrorName(code) + ")");
  }
  throw CudaError(operation, code);
}

}  // namespace folio::cuda
