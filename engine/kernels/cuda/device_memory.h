// What is owned on the device and beside it, freed with its owner.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "engine/kernels/cuda/cuda_error.h"

namespace folio::cuda {

// Memory of the device, at a multiple of 256 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // Throws CudaError that says for what, how much was wanted and how much is free.
  DeviceMemory(std::size_t bytes, const std::string& purpose) : bytes_(bytes) {
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, bytes);
    if (code == cudaErrorMemoryAllocation) {
      std::size_t free = 0;
      std::size_t total = 0;
      cudaMemGetInfo(&free, &total);
      cudaGetLastError();  // it was ours to handle
      throw CudaError("no memory on the device for " + purpose + ": " + std::to_string(bytes) + " bytes wanted, " +
                          std::to_string(free) + " of " + std::to_string(total) + " are free",
                      code);
    }
    check(code, "cudaMalloc");
    data_.reset(data);
  }

  std::size_t bytes() const { return bytes_; }
  template <class T = void>
  T* get() const {
    return static_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(void* data) const { cudaFree(data); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t bytes_ = 0;
};

// What an allocation of so many bytes takes: large ones have pages of 2 MiB of their own, small ones share them.
inline std::size_t mapped_bytes(std::size_t bytes) {
  constexpr std::size_t kMiB = std::size_t{1} << 20U;
  const std::size_t unit = bytes < kMiB ? 512 : 2 * kMiB;
  return (bytes + unit - 1) / unit * unit;
}

// Memory of the host that the device copies from and to by itself.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(std::size_t bytes) : bytes_(bytes) {
    void* data = nullptr;
    check(cudaMallocHost(&data, bytes), "cudaMallocHost");
    data_.reset(data);
  }

  std::size_t bytes() const { return bytes_; }
  template <class T = void>
  T* get() const {
    return static_cast<T*>(data_.get());
  }

 private:
  struct Free {
    void operator()(void* data) const { cudaFreeHost(data); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t bytes_ = 0;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "waiting for the device"); }
  void upload(void* device, const void* host, std::size_t bytes) const {
    check(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream_), "a copy to the device");
  }
  void download(void* host, const void* device, std::size_t bytes) const {
    check(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream_), "a copy from the device");
  }

 private:
  cudaStream_t stream_ = nullptr;
};

// A point in a stream that the host waits for.
class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) const { check(cudaEventRecord(event_, stream.get()), "cudaEventRecord"); }
  void wait() const { check(cudaEventSynchronize(event_), "a step on the device"); }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace folio::cuda
