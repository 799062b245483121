#include "bench/machine_peaks.h"

#include <immintrin.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <new>

namespace folio::bench {
namespace {

// Independent sums: more than the latency of any of these instructions asks for. From different starts, else the
// compiler would make them one.
constexpr int kChains = 12;
constexpr std::int64_t kRounds = 1 << 16;
constexpr std::int64_t kPieces = 64;
constexpr int kTries = 5;

std::atomic<float> g_sink;  // so that no sum is without use

using Loop = float (*)();

__attribute__((target("avx512f,avx512vnni"))) float int8_loop() {
  const __m512i a = _mm512_set1_epi32(0x01020304), b = _mm512_set1_epi32(0x04030201);
  __m512i sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_epi32(c);
  for (std::int64_t i = 0; i < kRounds; ++i) {
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  for (int c = 1; c < kChains; ++c) sums[0] = _mm512_add_epi32(sums[0], sums[c]);
  return static_cast<float>(_mm512_reduce_add_epi32(sums[0]));
}

__attribute__((target("avx512f,avx512bf16"))) float bf16_loop() {
  const auto a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(0x3F803F80));
  __m512 sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
  for (std::int64_t i = 0; i < kRounds; ++i) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  for (int c = 1; c < kChains; ++c) sums[0] = _mm512_add_ps(sums[0], sums[c]);
  return _mm512_reduce_add_ps(sums[0]);
}

__attribute__((target("avx512f"))) float f32_loop_512() {
  const __m512 a = _mm512_set1_ps(0.5F);
  __m512 sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm512_set1_ps(static_cast<float>(c));
  for (std::int64_t i = 0; i < kRounds; ++i) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, a, a);
  }
  for (int c = 1; c < kChains; ++c) sums[0] = _mm512_add_ps(sums[0], sums[c]);
  return _mm512_reduce_add_ps(sums[0]);
}

__attribute__((target("avx2,fma"))) float f32_loop_256() {
  const __m256 a = _mm256_set1_ps(0.5F);
  __m256 sums[kChains];
  for (int c = 0; c < kChains; ++c) sums[c] = _mm256_set1_ps(static_cast<float>(c));
  for (std::int64_t i = 0; i < kRounds; ++i) {
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, a, a);
  }
  for (int c = 1; c < kChains; ++c) sums[0] = _mm256_add_ps(sums[0], sums[c]);
  return _mm256_cvtss_f32(sums[0]);
}

template <class Fn>
double best_seconds(Fn&& fn) {
  double best = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const auto start = std::chrono::steady_clock::now();
    fn();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

// In pieces, so that a worker who wakes late finds work left.
double peak(ThreadPool& pool, Loop loop, int operations) {
  const double seconds = best_seconds([&] {
    pool.parallel_for(kPieces, 1, [loop](std::int64_t begin, std::int64_t end, int) {
      for (; begin < end; ++begin) g_sink.store(loop(), std::memory_order_relaxed);
    });
  });
  return static_cast<double>(kPieces * kRounds * kChains) * operations / seconds;
}

// Four streams, and lines asked for long before they are read: the hardware's prefetchers alone do not reach the peak.
constexpr std::int64_t kPieceBytes = 1 << 20;
constexpr std::int64_t kStreamBytes = kPieceBytes / 4;
constexpr std::int64_t kAhead = 1024;

std::int64_t read_piece(const std::byte* piece) {
  __m128i sums[4] = {};
  for (std::int64_t at = 0; at < kStreamBytes; at += 64) {
    for (std::int64_t stream = 0; stream < 4; ++stream) {
      const std::byte* line = piece + stream * kStreamBytes + at;
      _mm_prefetch(reinterpret_cast<const char*>(line + kAhead), _MM_HINT_T0);
      for (std::int64_t part = 0; part < 4; ++part) {
        sums[part] = _mm_xor_si128(sums[part], _mm_load_si128(reinterpret_cast<const __m128i*>(line) + part));
      }
    }
  }
  const __m128i sum = _mm_xor_si128(_mm_xor_si128(sums[0], sums[1]), _mm_xor_si128(sums[2], sums[3]));
  return _mm_cvtsi128_si64(sum);
}

}  // namespace

double peak_int8(ThreadPool& pool) {
  return __builtin_cpu_supports("avx512vnni") ? peak(pool, int8_loop, 64 * 2) : 0;
}

double peak_bf16(ThreadPool& pool) {
  return __builtin_cpu_supports("avx512bf16") ? peak(pool, bf16_loop, 32 * 2) : 0;
}

double peak_f32(ThreadPool& pool) {
  if (__builtin_cpu_supports("avx512f")) return peak(pool, f32_loop_512, 16 * 2);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return peak(pool, f32_loop_256, 8 * 2);
  return 0;
}

ReadPeak::ReadPeak(ThreadPool& pool) : pool_(pool) {
  void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, kBytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(memory);
  pool_.parallel_for(static_cast<std::int64_t>(kBytes), kPieceBytes, [this](std::int64_t begin, std::int64_t end, int) {
    std::fill(data_ + begin, data_ + end, std::byte{1});
  });
}

ReadPeak::~ReadPeak() {
  munmap(data_, kBytes);
}

void ReadPeak::read() {
  pool_.parallel_for(static_cast<std::int64_t>(kBytes) / kPieceBytes, 1,
                     [this](std::int64_t begin, std::int64_t end, int) {
                       for (; begin < end; ++begin) {
                         const std::int64_t sum = read_piece(data_ + begin * kPieceBytes);
                         g_sink.store(static_cast<float>(sum), std::memory_order_relaxed);
                       }
                     });
}

MachinePeaks measure_peaks(ThreadPool& pool) {
  MachinePeaks peaks;
  {
    ReadPeak memory(pool);
    peaks.read_bytes = static_cast<double>(ReadPeak::kBytes) / best_seconds([&] { memory.read(); });
  }
  peaks.int8 = peak_int8(pool);
  peaks.f32 = peak_f32(pool);
  peaks.bf16 = peak_bf16(pool);
  return peaks;
}

}  // namespace folio::bench
