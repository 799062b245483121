// What this machine can do at best: the limits that figures of kernels and of steps are held against. Measured, not
// looked up: a virtual machine's share of its host is in no data sheet.
#pragma once
#include <cstddef>

#include "base/thread_pool.h"

namespace folio::bench {

// Operations a second, a multiplication and an addition counting as two; registers only, all threads of the pool.
// 0: the CPU lacks the instruction.
double peak_int8(ThreadPool& pool);  // AVX-512 VNNI
double peak_f32(ThreadPool& pool);   // FMA, AVX-512 or AVX2
double peak_bf16(ThreadPool& pool);  // AVX-512 BF16

// Memory far larger than any cache, read once a call from its first to its last byte.
class ReadPeak {
 public:
  explicit ReadPeak(ThreadPool& pool);  // touches all of it
  ~ReadPeak();
  ReadPeak(const ReadPeak&) = delete;
  ReadPeak& operator=(const ReadPeak&) = delete;

  void read();
  static constexpr std::size_t kBytes = std::size_t{1} << 29;

 private:
  ThreadPool& pool_;
  std::byte* data_;
};

// The best of a few tries each; about half a second.
struct MachinePeaks {
  double read_bytes = 0;  // a second, like the others
  double int8 = 0;
  double f32 = 0;
  double bf16 = 0;
};
MachinePeaks measure_peaks(ThreadPool& pool);

}  // namespace folio::bench
