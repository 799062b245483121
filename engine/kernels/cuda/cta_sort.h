// What a CTA's threads do together to 64-bit integers, in an order of its own that does not show: integers add up
// exactly, and keys that are sorted are distinct.
#pragma once
#include "engine/kernels/cuda/device.h"

namespace folio::cuda {

FOLIO_DEVICE std::uint64_t sum_over_lanes(std::uint64_t value) {
  for (int mask = kWarpSize / 2; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

struct Scan {
  std::uint64_t through;  // the sum of this thread's value and of those of the threads before it
  std::uint64_t total;
};
// `totals`: [warps], shared; a barrier lies between two uses.
FOLIO_DEVICE Scan scan_cta(std::uint64_t value, std::uint64_t* totals) {
  const auto lane = static_cast<int>(threadIdx.x % kWarpSize);
  const unsigned warp = threadIdx.x / kWarpSize;
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const std::uint64_t before = shuffle_up(value, distance);
    if (lane >= distance) value += before;
  }
  if (lane == kWarpSize - 1) totals[warp] = value;
  sync_cta();
  Scan scan{value, 0};
  for (unsigned w = 0; w < blockDim.x / kWarpSize; ++w) {
    if (w < warp) scan.through += totals[w];
    scan.total += totals[w];
  }
  return scan;
}

FOLIO_DEVICE int next_power_of_two(int n) {
  int power = 1;
  while (power < n) power *= 2;
  return power;
}

// The largest first, `size` a power of two. Batcher's bitonic sort. Barriers at the start and at the end.
FOLIO_DEVICE void sort_descending(std::uint64_t* values, int size) {
  sync_cta();
  for (int run = 2; run <= size; run *= 2) {
    for (int distance = run / 2; distance > 0; distance /= 2) {
      for (auto i = static_cast<int>(threadIdx.x); i < size / 2; i += static_cast<int>(blockDim.x)) {
        const int first = i / distance * 2 * distance + i % distance;
        const std::uint64_t a = values[first];
        const std::uint64_t b = values[first + distance];
        if ((a < b) == ((first & run) == 0)) {
          values[first] = b;
          values[first + distance] = a;
        }
      }
      sync_cta();
    }
  }
}

}  // namespace folio::cuda
