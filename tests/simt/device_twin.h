// The device half of engine/kernels/cuda/device.h for the host: the same names, run by the runner (runner.h). Included
// by device.h when nvcc does not compile.
//
// mma: d is taken as a float and the 16 products of a row and a column, each exact in float, are added to it one by one
// by rising k. (A tensor core adds them in an order of its own, so results differ in the last bits.)
#pragma once
#include <vector_types.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "tests/simt/operations.h"
#include "tests/simt/runner.h"

// The CUDA headers give these to g++ as attributes that it does not know.
#undef __shared__
#undef __launch_bounds__

#define FOLIO_DEVICE inline
#define FOLIO_HOST_DEVICE inline
#define FOLIO_KERNEL(max_threads) void

extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace folio::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffU;

inline void sync_cta(simt::Where where = simt::Where::current()) {
  simt::sync_cta(where);
}
inline void sync_warp(simt::Where where = simt::Where::current()) {
  simt::sync_warp(where);
}

template <class T>
T from_lane(const char* operation, T value, int lane, simt::Where where) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = simt::exchange(operation, bits, lane, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}
template <class T>
T shuffle(T value, int lane, simt::Where where = simt::Where::current()) {
  return from_lane("shuffle", value, lane % kWarpSize, where);
}
template <class T>
T shuffle_xor(T value, int lane_mask, simt::Where where = simt::Where::current()) {
  return from_lane("shuffle_xor", value, static_cast<int>(threadIdx.x % kWarpSize) ^ lane_mask, where);
}
template <class T>
T shuffle_up(T value, int lanes, simt::Where where = simt::Where::current()) {
  const int lane = static_cast<int>(threadIdx.x % kWarpSize);
  return from_lane("shuffle_up", value, lane < lanes ? lane : lane - lanes, where);
}
inline std::uint32_t vote(bool predicate, simt::Where where = simt::Where::current()) {
  return simt::vote(predicate, where);
}

// Pieces lie further apart than on the device, and what lies between may not be touched.
class SharedArena {
 public:
  template <class T>
  T* take(int count, simt::Where where = simt::Where::current()) {
    static_assert(alignof(T) <= 16);
    const int bytes = count * static_cast<int>(sizeof(T));
    T* piece = static_cast<T*>(simt::take_shared(used_, bytes, where));
    used_ += (bytes + 15) / 16 * 16;
    return piece;
  }

 private:
  int used_ = 0;
};

// One access of 16 bytes, which g++ makes four of for a uint4.
using SixteenBytes [[gnu::vector_size(16), gnu::may_alias]] = std::uint32_t;
inline uint4 load_16(const void* from) {
  return __builtin_bit_cast(uint4, *static_cast<const SixteenBytes*>(from));
}
inline void store_16(void* to, uint4 value) {
  *static_cast<SixteenBytes*>(to) = __builtin_bit_cast(SixteenBytes, value);
}
inline uint4 load_16_once(const void* from) {
  return load_16(from);
}

inline void copy_16_async(void* shared, const void* from, bool valid) {
  simt::copy_16(shared, valid ? from : nullptr);
}
inline void commit_copies() {
  simt::commit_copies();
}
template <int kPending>
void wait_copies() {
  static_assert(kPending >= 0);
  simt::wait_copies(kPending);
}

inline void load_matrices(std::uint32_t (&m)[4], const void* row, simt::Where where = simt::Where::current()) {
  simt::load_matrices(m, row, false, where);
}
inline void load_matrices_transposed(std::uint32_t (&m)[4], const void* row,
                                     simt::Where where = simt::Where::current()) {
  simt::load_matrices(m, row, true, where);
}

// T: __half or __nv_bfloat16.
template <class T>
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                  simt::Where where = simt::Where::current()) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16>);
  simt::multiply_add(d, a, b0, b1, std::is_same_v<T, __nv_bfloat16>, where);
}

inline int dot_4x8(std::uint32_t a, std::uint32_t b, int sum) {
  for (int i = 0; i < 32; i += 8) {
    sum += static_cast<std::int8_t>(a >> i) * static_cast<std::int8_t>(b >> i);
  }
  return sum;
}

inline float exp2_fast(float x) {
  return x < -126.0F ? 0.0F : std::exp2(x);
}

}  // namespace folio::cuda
