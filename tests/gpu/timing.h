// Times of work in a stream, by the device's own clock.
#pragma once
#include <algorithm>
#include <functional>
#include <vector>

#include "engine/kernels/cuda/device_memory.h"

namespace folio::gpu {

// Milliseconds between two events around `work`: the median of `repeats` after two that only warm up.
inline double median_ms(const cuda::Stream& stream, const std::function<void()>& work, int repeats = 9) {
  struct TimedEvent {
    TimedEvent() { cuda::check(cudaEventCreate(&event), "cudaEventCreate"); }
    ~TimedEvent() { cudaEventDestroy(event); }
    cudaEvent_t event = nullptr;
  } begin, end;
  std::vector<float> times;
  for (int i = -2; i < repeats; ++i) {
    cuda::check(cudaEventRecord(begin.event, stream.get()), "cudaEventRecord");
    work();
    cuda::check(cudaEventRecord(end.event, stream.get()), "cudaEventRecord");
    cuda::check(cudaEventSynchronize(end.event), "what is timed");
    float ms = 0.0F;
    cuda::check(cudaEventElapsedTime(&ms, begin.event, end.event), "cudaEventElapsedTime");
    if (i >= 0) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return static_cast<double>(times[times.size() / 2]);
}

}  // namespace folio::gpu
