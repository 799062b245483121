// Memory of the device for tests, with the interface of tests/simt/device_buffer.h as far as shared tests use it.
#pragma once
#include <cstddef>
#include <span>
#include <vector>

#include "engine/kernels/cuda/device_memory.h"

namespace folio::cuda {

template <class T>
class DeviceBuffer {
 public:
  // Every byte is 0xff: NaN in floats, -1 in integers.
  explicit DeviceBuffer(std::size_t size) : size_(size), memory_(size * sizeof(T) + 16, "a test") {
    check(cudaMemset(memory_.get(), 0xff, memory_.bytes()), "filling a test's memory");
  }
  explicit DeviceBuffer(std::span<const T> values) : DeviceBuffer(values.size()) {
    if (values.empty()) return;
    check(cudaMemcpy(memory_.get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice), "a test's upload");
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(std::span<const T>(values)) {}

  T* data() { return memory_.template get<T>(); }
  const T* data() const { return memory_.template get<T>(); }
  std::size_t size() const { return size_; }
  std::vector<T> to_vector() const {
    check(cudaDeviceSynchronize(), "a test's kernels");
    std::vector<T> values(size_);
    check(cudaMemcpy(values.data(), memory_.get(), size_ * sizeof(T), cudaMemcpyDeviceToHost), "a test's download");
    return values;
  }

 private:
  std::size_t size_;
  DeviceMemory memory_;
};

}  // namespace folio::cuda
