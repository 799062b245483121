// Kernels of one operation each, for operations_test.cc. All pointers are to device memory.
#pragma once
#include <cstdint>

#include "engine/kernels/cuda/launch.h"

namespace folio::cuda {

// One CTA of a warp: products[16][8] = a[16][16] * b[16][8] + sums[16][8], through copy_16_async, shared memory,
// load_matrices(_transposed) and multiply_add. Elements of T (f16 or bf16).
template <class T>
void small_product(const T* a, const T* b, const float* sums, float* products);

// One CTA of `threads`: [threads] values that each thread got of value i + 1 of thread i by
//   0: shuffle from lane 5  1: shuffle_xor 3  2: shuffle_up 2  3: shuffle of a double from (lane + 1) % 32  4: vote(i %
//   3 == 0)
void exchange_values(int operation, int threads, std::int64_t* results);

// CTAs of 64 threads: sums over each CTA's 64 values, by shuffles and shared memory.
void sum_values(const float* values, int num_ctas, float* sums);

// One thread a result: dot_4x8(a, b, sum).
void dots(const std::uint32_t* a, const std::uint32_t* b, const int* sums, int count, int* results);

// 32 copies of 16 bytes through shared memory, of which the first `num_valid` are valid; from points to as many.
void copy_through_shared(const void* from, int num_valid, void* to);

// One warp: m[4 * lane + i] is what load_matrices(_transposed) gave for i of four matrices [4][8][8].
void loaded_matrices(const std::uint16_t* matrices, bool transposed, std::uint32_t* m);

// One warp takes pieces of 1, 17, 4 (a float) and 16 bytes and fills them; how[0..3] are the pieces' first addresses
// modulo 16, how[4] the number of bytes that are not as they were filled.
void fill_pieces(int* how);

// One warp: lane l reads global float l * stride (up to 8), writes it to shared float l * stride and reads it there;
// writes 16 bytes of shared memory at 16 l and at 128 l and reads another lane's; writes global float l.
void walk_memory(const float* from, int stride, float* to);

}  // namespace folio::cuda
