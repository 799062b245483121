// Contexts that a kernel's threads run in: a stack each, switched by hand. Boost.Context does the same and would cost a
// Debian package that nothing else here wants; a switch is fourteen instructions, on x86-64, which folio is built for.
#pragma once
#include <cstddef>

namespace folio::simt {

struct Fiber {
  void* stack_pointer = nullptr;  // of a suspended one
  char* stack = nullptr;          // its lowest byte
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;  // AddressSanitizer's
};

// Stacks for `count` fibers, each above a page that may not be touched. One instance; never gives memory back before it
// ends, so that a launch costs no system calls.
class FiberStacks {
 public:
  FiberStacks() = default;
  ~FiberStacks();
  FiberStacks(const FiberStacks&) = delete;
  FiberStacks& operator=(const FiberStacks&) = delete;
  void assign(Fiber& fiber, std::size_t index);  // index < kMaxFibers
  bool contains(const void* at) const { return at >= memory_ && at < memory_ + kMaxFibers * kStride; }

  static constexpr std::size_t kMaxFibers = 1024;
  static constexpr std::size_t kGuard = 4096;
  static constexpr std::size_t kStride = std::size_t{256} * 1024;  // AddressSanitizer's report is written on it

 private:
  char* memory_ = nullptr;
};

// The next switch to `fiber` calls entry() on its stack from the start; entry never returns.
void prepare(Fiber& fiber, void (*entry)());

// Suspends `from`, which must be the running one, and goes on with `to`. `from_ends`: it is never resumed.
void switch_fiber(Fiber& from, Fiber& to, bool from_ends);

// Forgets the frames of a suspended fiber that will not be resumed.
void abandon(Fiber& fiber);

// The calling thread's own stack, as the fiber that all others are started from.
Fiber main_fiber();

}  // namespace folio::simt
