// What a kernel may use of the device: the only header with PTX. Kernels are plain CUDA C++ under the rules below, so
// that their own source also compiles for the host, where tests/simt runs it with these functions emulated from their
// documented behaviour (PTX ISA 8.x: "cp.async", "ldmatrix", "mma.m16n8k16", "dp4a", "shfl.sync").
//
// Rules. They hold for every file of this folder that has kernels, and tests/simt checks what it can of them:
//   - a kernel takes one plain struct by value and is started by launch() of launch.h alone;
//   - shared memory comes from a SharedArena, taken by all threads of the CTA in one fixed order;
//   - a CTA has full warps, warp operations are for all 32 lanes, barriers and warp operations stand in code that their
//     threads reach together, and only a whole CTA returns early;
//   - only sync_cta() and sync_warp() order memory between threads; CTAs of a launch do not wait for each other;
//   - no atomics; accesses of 16 bytes go through the functions here;
//   - templates on head size and element type only (products of few rows: on their number): block size and group are
//     run-time values.
// "CTA" is CUDA's thread block: a block is ours, of the KV cache.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstddef>
#include <cstdint>

#ifndef __CUDACC__
#include <simt/device_twin.h>  // the same names, for the host
#else

#define FOLIO_DEVICE __device__ __forceinline__
#define FOLIO_HOST_DEVICE __host__ __device__ __forceinline__
// A kernel of at most this many threads a CTA.
#define FOLIO_KERNEL(max_threads) __global__ void __launch_bounds__(max_threads)

namespace folio::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffffU;

FOLIO_DEVICE void sync_cta() {
  __syncthreads();
}
FOLIO_DEVICE void sync_warp() {
  __syncwarp();
}

// T: 4 or 8 bytes.
template <class T>
FOLIO_DEVICE T shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <class T>
FOLIO_DEVICE T shuffle_xor(T value, int lane_mask) {
  return __shfl_xor_sync(kAllLanes, value, lane_mask);
}
template <class T>
FOLIO_DEVICE T shuffle_up(T value, int lanes) {  // a lane below `lanes` keeps its own
  return __shfl_up_sync(kAllLanes, value, static_cast<unsigned>(lanes));
}
FOLIO_DEVICE std::uint32_t vote(bool predicate) {
  return __ballot_sync(kAllLanes, predicate);
}

// The CTA's dynamic shared memory (LaunchConfig::shared_bytes). Every piece begins at a multiple of 16 bytes; shared
// memory that was never written holds anything.
class SharedArena {
 public:
  template <class T>
  FOLIO_DEVICE T* take(int count) {
    T* piece = reinterpret_cast<T*>(base() + used_);
    used_ += (count * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
    return piece;
  }

 private:
  static FOLIO_DEVICE char* base() {
    extern __shared__ uint4 folio_shared_memory[];
    return reinterpret_cast<char*>(folio_shared_memory);
  }
  int used_ = 0;
};

// 16 bytes at a multiple of 16.
FOLIO_DEVICE uint4 load_16(const void* from) {
  return *static_cast<const uint4*>(from);
}
FOLIO_DEVICE void store_16(void* to, uint4 value) {
  *static_cast<uint4*>(to) = value;
}
// From global memory that no thread of the launch writes, read once: it takes no place in the first-level cache.
FOLIO_DEVICE uint4 load_16_once(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

// 16 bytes from global to shared memory, there after the wait_copies() that covers its group and a barrier. Not valid:
// zeros are written, and `from` is not read (it may be any address).
FOLIO_DEVICE void copy_16_async(void* shared, const void* from, bool valid) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
// Closes this thread's group of copies.
FOLIO_DEVICE void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until all but this thread's last `kPending` groups have landed, for this thread: a barrier makes it so for others.
template <int kPending>
FOLIO_DEVICE void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// ldmatrix: four 8x8 matrices of 16-bit elements from shared memory; lanes 8i .. 8i + 7 give the addresses of the rows
// of matrix i (16 bytes each, at a multiple of 16). Lane l gets of matrix i, in m[i], the elements 2 (l % 4) and the
// next of row l / 4; transposed: of column l / 4.
FOLIO_DEVICE void load_matrices(std::uint32_t (&m)[4], const void* row) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(from)
               : "memory");
}
FOLIO_DEVICE void load_matrices_transposed(std::uint32_t (&m)[4], const void* row) {
  const auto from = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(from)
               : "memory");
}

// mma.m16n8k16: d[16][8] += a[16][16] * b[16][8], floats from T = __half or __nv_bfloat16 (two in a register, the lower
// index in the lower half). With row = lane / 4 and pair = 2 (lane % 4), a lane holds
//   d: [row][pair, pair + 1], [row + 8][pair, pair + 1]
//   a: [row][pair ..], [row + 8][pair ..], [row][pair + 8 ..], [row + 8][pair + 8 ..]
//   b: [pair ..][row], [pair + 8 ..][row]
template <class T>
FOLIO_DEVICE void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);
template <>
FOLIO_DEVICE void multiply_add<__half>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
FOLIO_DEVICE void multiply_add<__nv_bfloat16>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                              std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// sum + the dot product of four signed bytes of each.
FOLIO_DEVICE int dot_4x8(std::uint32_t a, std::uint32_t b, int sum) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
}

// 2^x, about 2 units in the last place off; 0 for -infinity.
FOLIO_DEVICE float exp2_fast(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

}  // namespace folio::cuda

#endif
