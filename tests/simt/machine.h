// One CTA of fibers and the state of its threads: who runs, who waits where, who goes on next. For the runner's own
// files; one instance, machine().
#pragma once
#include <vector_types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "tests/simt/fiber.h"
#include "tests/simt/runner.h"

namespace folio::simt {

inline constexpr int kLanes = 32;

// Where in a kernel's source a thread waits, and in what.
struct Place {
  const char* operation = nullptr;
  std::source_location where;
  bool same_as(const Place& other) const;
  std::string text() const;  // "sync_cta at engine/kernels/cuda/x.cu:12"
};

// A point in the order of a launch's accesses: two of one thread, or two of one CTA with a barrier of both between
// them, are ordered; see memory_race.h.
struct Moment {
  std::uint32_t cta = 0;  // counted over all launches, from 1
  std::uint32_t thread = 0;
  std::uint32_t cta_barriers = 0;   // passed by the thread's CTA
  std::uint32_t warp_barriers = 0;  // passed by its warp
};

// A copy_16_async that has not landed.
struct FlyingCopy {
  void* to = nullptr;
  const void* from = nullptr;  // nullptr: zeros
  const void* site = nullptr;
};

struct Thread {
  enum class State : std::uint8_t { kReady, kInWarpOperation, kAtCtaBarrier, kEnded };
  Fiber fiber;
  uint3 index{};
  State state = State::kReady;
  Place place;  // of the wait
  int pieces_taken = 0;
  std::vector<FlyingCopy> copies;        // oldest first
  std::vector<std::size_t> group_sizes;  // of the committed ones among them
};

class Machine {
 public:
  // As run() of runner.h.
  void launch(const char* name, dim3 grid, int threads, std::size_t shared_bytes, const std::function<void()>& body);
  void set_order(Order order, std::uint64_t seed);

  // ---- called by a thread of the running kernel ----

  // Suspends the thread until all lanes of its warp are at `place`; throws SimtError when one is elsewhere. Returns
  // what each lane gave as `input`, valid until the caller's next operation. The last one that arrives calls combine()
  // of that, where given, while the others are still suspended: there an input may be the address of something on a
  // lane's stack.
  using Inputs = std::array<std::uint64_t, kLanes>;
  const Inputs& meet_warp(const Place& place, std::uint64_t input, void (*combine)(const Inputs&) = nullptr);
  void sync_warp(const Place& place);
  void sync_cta(const Place& place);
  // Ends the launch from code that cannot throw: run() throws SimtError with text(), called outside of the kernel.
  // Nothing on the thread's stack is destroyed.
  [[noreturn]] void stop(std::string (*text)());

  bool on_fiber_stack(const void* at) const { return stacks_.contains(at); }
  const Fiber& main() const { return main_; }
  Thread& running() { return *running_; }
  const Moment& now() const { return now_; }
  std::size_t shared_bytes() const { return shared_bytes_; }
  std::string thread_name(std::uint32_t thread) const;  // "thread 35 (warp 1, lane 3)"

 private:
  struct Warp {
    std::uint32_t ready = 0;  // lanes that can run, as bits by their place in the order of lanes
    int arrived = 0;          // at the warp operation
    Place place;
    std::uint32_t barriers = 0;
    // Of two operations in turn: a lane may be in the next one while others read the results of the last.
    std::array<Inputs, 2> inputs{};
    int turn = 0;
  };

  void run_cta();
  void start_threads();
  static void thread_main();
  void suspend(Thread::State state, const Place& place);
  void go_on(bool ended);  // with the next thread that can run, or with launch() when there is none
  Thread* next_thread();
  int next_warp();
  void release_warp(int warp);
  void release_cta();
  void resume(Thread& thread);
  std::string deadlock() const;
  int lane_at(int position) const { return lane_order_[static_cast<std::size_t>(position)]; }
  void draw_orders();
  std::vector<std::uint32_t> cta_order(std::uint32_t count);

  FiberStacks stacks_;
  Fiber main_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::array<int, kLanes> lane_order_{};
  std::array<std::uint32_t, kLanes> position_of_lane_{};
  std::vector<int> warp_order_;
  int current_ = 0;  // place in warp_order_ of the warp that runs
  bool yield_warp_ = false;
  int at_barrier_ = 0;
  Place barrier_;
  int num_ended_ = 0;

  const std::function<void()>* body_ = nullptr;
  Thread* running_ = nullptr;
  Moment now_;
  std::uint32_t last_cta_ = 0;
  std::size_t shared_bytes_ = 0;
  std::string failure_;
  std::string (*stopped_)() = nullptr;
  std::exception_ptr thrown_;
  Order order_ = Order::kForward;
  std::mt19937_64 random_;
};

extern Machine the_machine;
inline Machine& machine() {
  return the_machine;
}

// Whether the kernel's own code runs, not the runner's for it: what the race build's hooks look at.
inline bool kernel_code_runs = false;
// Held by the runner's code that a kernel calls.
class RunnerCode {
 public:
  RunnerCode() { kernel_code_runs = false; }
  ~RunnerCode() { kernel_code_runs = true; }
  RunnerCode(const RunnerCode&) = delete;
  RunnerCode& operator=(const RunnerCode&) = delete;
};

}  // namespace folio::simt
