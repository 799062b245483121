// Runs CUDA kernels, compiled for the host from their own source, on the CPU: what tests call. The kernels' side is
// device_twin.h. Test code only.
//
// A CTA's threads are fibers of one operating-system thread; CTAs run one after another, each to its end. A warp runs
// until all its lanes wait for other warps, then the next one does. What a kernel must not rely on is varied (the order
// of lanes, warps and CTAs), and what it must do is checked:
//   - barriers and warp operations are reached by all their threads, at one place in the source;
//   - memory is used inside of what the kernel was given, and shared memory inside of what it took;
//   - a copy's bytes are used after its wait: until then its destination holds NaN and may not be touched.
// Two builds of the same tests check memory in two ways:
//   simt_*_test       AddressSanitizer and UndefinedBehaviorSanitizer. A fault of memory ends the process.
//   simt_*_race_test  every access of the kernels is seen, byte by byte (memory_race.h): also accesses of two threads
//   that
//                     no barrier orders, and reads of shared memory that nobody wrote. A fault is a SimtError. A
//                     missing sync_warp() shows only here: lanes of a warp run in turn, so that values mostly come out
//                     right.
// A NaN where a number should be, in the first build: shared memory that nobody wrote (it begins as 0xff).
#pragma once
#include <vector_types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <source_location>
#include <stdexcept>
#include <string>

// Of the running thread, as in CUDA.
extern uint3 threadIdx;
extern uint3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace folio::simt {

// A kernel broke a rule of engine/kernels/cuda/device.h: "NAME: what happened, where".
class SimtError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// In which order the lanes of a warp, the warps of a CTA and the CTAs of a launch run: by rising index, by falling
// index, or in an order drawn anew for each CTA, in which warps also give way to each other after warp operations.
enum class Order : std::uint8_t { kForward, kReverse, kRandom };

// For the launches that follow. Rising order until first called.
void set_order(Order order, std::uint64_t seed = 1);

// Calls `test` under each order in turn and sets the first one again. For results that must not depend on it.
void in_every_order(const std::function<void(Order)>& test);

// One launch: `body` is called once by each thread. Returns when all have ended. Throws SimtError, or what `body`
// threw; then the launch's other threads stay where they were. Not from inside a kernel, and from one thread only.
void run(const char* name, dim3 grid, int threads, std::size_t shared_bytes, const std::function<void()>& body);

}  // namespace folio::simt
