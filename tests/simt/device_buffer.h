// "Device" memory of a test: at a multiple of 256 bytes as cudaMalloc gives it, between guards that no kernel may
// touch.
#pragma once
#include <cstddef>
#include <cstring>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "tests/simt/memory.h"

namespace folio::simt {

template <class T>
class DeviceBuffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Every byte is 0xff: NaN in floats, -1 in integers.
  explicit DeviceBuffer(std::size_t size) : size_(size) {
    memory_ = static_cast<char*>(::operator new(2 * kGuard + room(), std::align_val_t{kAlignment}));
    std::memset(memory_, 0xff, 2 * kGuard + room());
    memory::add_buffer(begin(), size * sizeof(T), kGuard);
  }
  explicit DeviceBuffer(std::span<const T> values) : DeviceBuffer(values.size()) {
    if (!values.empty()) std::memcpy(begin(), values.data(), values.size_bytes());
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(std::span<const T>(values)) {}
  ~DeviceBuffer() {
    memory::remove_buffer(begin(), size_ * sizeof(T), kGuard);
    ::operator delete(memory_, std::align_val_t{kAlignment});
  }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() { return reinterpret_cast<T*>(begin()); }
  const T* data() const { return reinterpret_cast<const T*>(memory_ + kGuard); }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t i) { return data()[i]; }
  const T& operator[](std::size_t i) const { return data()[i]; }
  std::span<T> span() { return {data(), size_}; }
  std::span<const T> span() const { return {data(), size_}; }
  std::vector<T> to_vector() const { return {data(), data() + size_}; }

 private:
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::size_t kAlignment = 256;
  std::size_t room() const { return (size_ * sizeof(T) + 15) / 16 * 16; }
  char* begin() { return memory_ + kGuard; }

  std::size_t size_;
  char* memory_ = nullptr;
};

}  // namespace folio::simt
