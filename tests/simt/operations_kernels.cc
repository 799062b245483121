#include "tests/simt/operations_kernels.h"

namespace folio::cuda {
namespace {

template <class T>
struct SmallProduct {
  const T* a;
  const T* b;
  const float* sums;
  float* products;
};

template <class T>
FOLIO_KERNEL(32)
small_product_kernel(SmallProduct<T> work) {
  SharedArena arena;
  T* a = arena.take<T>(16 * 16);
  T* b = arena.take<T>(16 * 8);
  const int lane = static_cast<int>(threadIdx.x);
  copy_16_async(a + 8 * lane, work.a + 8 * lane, true);
  if (lane < 16) copy_16_async(b + 8 * lane, work.b + 8 * lane, true);
  commit_copies();
  wait_copies<0>();
  sync_warp();

  std::uint32_t a_part[4];
  std::uint32_t b_part[4];
  load_matrices(a_part, a + lane % 16 * 16 + lane / 16 * 8);
  load_matrices_transposed(b_part, b + lane % 16 * 8);  // the upper lanes' matrices are not used
  const int row = lane / 4;
  const int column = lane % 4 * 2;
  float d[4];
  for (int i = 0; i < 4; ++i) d[i] = work.sums[(row + i / 2 * 8) * 8 + column + i % 2];
  multiply_add<T>(d, a_part, b_part[0], b_part[1]);
  for (int i = 0; i < 4; ++i) work.products[(row + i / 2 * 8) * 8 + column + i % 2] = d[i];
}

struct ExchangeValues {
  int operation;
  std::int64_t* results;
};

FOLIO_KERNEL(1024) exchange_values_kernel(ExchangeValues work) {
  const int value = static_cast<int>(threadIdx.x) + 1;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  std::int64_t result = 0;
  if (work.operation == 0) result = shuffle(value, 5);
  if (work.operation == 1) result = shuffle_xor(value, 3);
  if (work.operation == 2) result = shuffle_up(value, 2);
  if (work.operation == 3)
    result = static_cast<std::int64_t>(shuffle(static_cast<double>(value), (lane + 1) % kWarpSize));
  if (work.operation == 4) result = vote(threadIdx.x % 3 == 0);
  work.results[threadIdx.x] = result;
}

struct SumValues {
  const float* values;
  float* sums;
};

FOLIO_KERNEL(64) sum_values_kernel(SumValues work) {
  SharedArena arena;
  float* parts = arena.take<float>(2);
  float sum = work.values[blockIdx.x * 64 + threadIdx.x];
  for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
  if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = sum;
  sync_cta();
  if (threadIdx.x == 0) work.sums[blockIdx.x] = parts[0] + parts[1];
}

struct Dots {
  const std::uint32_t* a;
  const std::uint32_t* b;
  const int* sums;
  int count;
  int* results;
};

FOLIO_KERNEL(32) dots_kernel(Dots work) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < work.count) work.results[i] = dot_4x8(work.a[i], work.b[i], work.sums[i]);
}

struct CopyThroughShared {
  const uint4* from;
  int num_valid;
  uint4* to;
};

FOLIO_KERNEL(32) copy_through_shared_kernel(CopyThroughShared work) {
  SharedArena arena;
  uint4* pieces = arena.take<uint4>(32);
  const int lane = static_cast<int>(threadIdx.x);
  copy_16_async(pieces + lane, work.from + lane, lane < work.num_valid);
  commit_copies();
  commit_copies();  // an empty group
  wait_copies<1>();
  sync_warp();
  store_16(work.to + lane, load_16(pieces + 31 - lane));
}

struct LoadedMatrices {
  const std::uint16_t* matrices;
  bool transposed;
  std::uint32_t* m;
};

FOLIO_KERNEL(32) loaded_matrices_kernel(LoadedMatrices work) {
  SharedArena arena;
  std::uint16_t* rows = arena.take<std::uint16_t>(4 * 8 * 8);
  const int lane = static_cast<int>(threadIdx.x);
  store_16(rows + 8 * lane, load_16_once(work.matrices + 8 * lane));
  sync_warp();
  std::uint32_t m[4];
  if (work.transposed) {
    load_matrices_transposed(m, rows + 8 * lane);
  } else {
    load_matrices(m, rows + 8 * lane);
  }
  for (int i = 0; i < 4; ++i) work.m[4 * lane + i] = m[i];
}

struct FillPieces {
  int* how;
};

FOLIO_KERNEL(32) fill_pieces_kernel(FillPieces work) {
  SharedArena arena;
  char* one = arena.take<char>(1);
  char* seventeen = arena.take<char>(17);
  float* number = arena.take<float>(1);
  uint4* word = arena.take<uint4>(1);
  if (threadIdx.x != 0) return;
  char* const pieces[] = {one, seventeen, reinterpret_cast<char*>(number), reinterpret_cast<char*>(word)};
  const int sizes[] = {1, 17, 4, 16};
  for (int piece = 0; piece < 4; ++piece) {
    work.how[piece] = static_cast<int>(reinterpret_cast<std::uintptr_t>(pieces[piece]) % 16);
    for (int i = 0; i < sizes[piece]; ++i) pieces[piece][i] = static_cast<char>(piece);
  }
  int wrong = 0;
  for (int piece = 0; piece < 4; ++piece) {
    for (int i = 0; i < sizes[piece]; ++i) wrong += pieces[piece][i] != static_cast<char>(piece) ? 1 : 0;
  }
  work.how[4] = wrong;
}

struct WalkMemory {
  const float* from;
  int stride;
  float* to;
};

FOLIO_KERNEL(32) walk_memory_kernel(WalkMemory work) {
  SharedArena arena;
  float* floats = arena.take<float>(32 * 8);
  uint4* near = arena.take<uint4>(32);
  uint4* far = arena.take<uint4>(32 * 8);
  const int lane = static_cast<int>(threadIdx.x);
  const float value = work.from[lane * work.stride];
  floats[lane * work.stride] = value;
  store_16(near + lane, uint4{1, 2, 3, 4});
  store_16(far + 8 * lane, uint4{5, 6, 7, 8});
  sync_warp();
  const float again = floats[lane * work.stride];
  const uint4 from_near = load_16(near + (lane ^ 1));
  const uint4 from_far = load_16(far + 8 * (lane ^ 1));
  work.to[lane] = again + static_cast<float>(from_near.x + from_far.w);
}

}  // namespace

template <class T>
void small_product(const T* a, const T* b, const float* sums, float* products) {
  launch("small product", small_product_kernel<T>, {1, 32, 24 * 16 * sizeof(T)}, {a, b, sums, products});
}
template void small_product(const __half* a, const __half* b, const float* sums, float* products);
template void small_product(const __nv_bfloat16* a, const __nv_bfloat16* b, const float* sums, float* products);

void exchange_values(int operation, int threads, std::int64_t* results) {
  launch("exchange values", exchange_values_kernel, {1, threads}, {operation, results});
}

void sum_values(const float* values, int num_ctas, float* sums) {
  launch("sum values", sum_values_kernel, {static_cast<unsigned>(num_ctas), 64, 2 * sizeof(float)}, {values, sums});
}

void dots(const std::uint32_t* a, const std::uint32_t* b, const int* sums, int count, int* results) {
  launch("dots", dots_kernel, {static_cast<unsigned>(count + 31) / 32, 32}, {a, b, sums, count, results});
}

void copy_through_shared(const void* from, int num_valid, void* to) {
  launch("copy through shared", copy_through_shared_kernel, {1, 32, 32 * 16},
         {static_cast<const uint4*>(from), num_valid, static_cast<uint4*>(to)});
}

void loaded_matrices(const std::uint16_t* matrices, bool transposed, std::uint32_t* m) {
  launch("loaded matrices", loaded_matrices_kernel, {1, 32, 4 * 8 * 16}, {matrices, transposed, m});
}

void fill_pieces(int* how) {
  launch("fill pieces", fill_pieces_kernel, {1, 32, 16 + 32 + 16 + 16}, {how});
}

void walk_memory(const float* from, int stride, float* to) {
  launch("walk memory", walk_memory_kernel, {1, 32, 32 * 8 * 4 + 32 * 16 + 32 * 128}, {from, stride, to});
}

}  // namespace folio::cuda
