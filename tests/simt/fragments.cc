#include "tests/simt/fragments.h"

#include <cuda_fp16.h>

#include <bit>
#include <cstring>
#include <vector>

namespace folio::simt {
namespace {

// All 65536 values: a conversion is the larger part of an mma otherwise.
const float* half_values() {
  static const std::vector<float> values = [] {
    std::vector<float> made(65536);
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
      __half_raw raw;
      raw.x = static_cast<unsigned short>(bits);
      made[bits] = __half2float(__half(raw));
    }
    return made;
  }();
  return values.data();
}

}  // namespace

void distribute_matrices(const std::array<const std::uint16_t*, 32>& rows, int lane, bool transposed,
                         std::uint32_t* m) {
  const int line = lane / 4;
  const int pair = lane % 4 * 2;
  for (int i = 0; i < 4; ++i) {
    const auto element = [&](int row, int column) -> std::uint32_t {
      return rows[static_cast<std::size_t>(8 * i + row)][column];
    };
    const std::uint32_t low = transposed ? element(pair, line) : element(line, pair);
    const std::uint32_t high = transposed ? element(pair + 1, line) : element(line, pair + 1);
    m[i] = low | high << 16;
  }
}

template <bool kBf16>
void multiply_add_warp(const std::array<const MmaLane*, 32>& lanes) {
  float a[16][16];
  float b[16][8];
  float d[16][8];
  [[maybe_unused]] const float* halves = half_values();
  const auto value = [halves](std::uint32_t bits) {
    if constexpr (kBf16) return std::bit_cast<float>(bits << 16);
    return halves[bits & 0xffffU];
  };
  for (int lane = 0; lane < 32; ++lane) {
    const MmaLane& from = *lanes[static_cast<std::size_t>(lane)];
    const int row = lane / 4;
    const int pair = lane % 4 * 2;
    for (int half = 0; half < 2; ++half) {  // the lower and the upper of a register
      for (int i = 0; i < 4; ++i) a[row + i % 2 * 8][pair + i / 2 * 8 + half] = value(from.a[i] >> 16 * half);
      for (int i = 0; i < 2; ++i) {
        b[pair + 8 * i + half][row] = value(from.b[i] >> 16 * half);
        d[row + 8 * i][pair + half] = from.d[2 * i + half];
      }
    }
  }
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) d[row][column] += a[row][k] * b[k][column];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    float* to = lanes[static_cast<std::size_t>(lane)]->d;
    for (int i = 0; i < 4; ++i) to[i] = d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
  }
}

template void multiply_add_warp<false>(const std::array<const MmaLane*, 32>& lanes);
template void multiply_add_warp<true>(const std::array<const MmaLane*, 32>& lanes);

}  // namespace folio::simt
