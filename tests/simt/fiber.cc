#include "tests/simt/fiber.h"

#include <pthread.h>
#include <sys/mman.h>

#include <cerrno>
#include <system_error>

#ifdef FOLIO_SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// void folio_simt_switch(void** save, void* resume): what the ABI says a call preserves, then the other stack. The
// floating-point control words are the same in all fibers.
asm(R"(
  .text
  .type folio_simt_switch, @function
folio_simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .size folio_simt_switch, . - folio_simt_switch
)");
extern "C" void folio_simt_switch(void** save, void* resume);

// Where a prepared fiber begins: its entry is in rbx.
asm(R"(
  .text
  .type folio_simt_begin, @function
folio_simt_begin:
  movq %rbx, %rdi
  call folio_simt_enter
  ud2
  .size folio_simt_begin, . - folio_simt_begin
)");
extern "C" void folio_simt_begin();
extern "C" __attribute__((used)) void folio_simt_enter(void (*entry)()) {
#ifdef FOLIO_SIMT_ASAN
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  entry();
}

namespace folio::simt {

FiberStacks::~FiberStacks() {
  if (memory_ != nullptr) munmap(memory_, kMaxFibers * kStride);
}

void FiberStacks::assign(Fiber& fiber, std::size_t index) {
  if (memory_ == nullptr) {
    void* memory =
        mmap(nullptr, kMaxFibers * kStride, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "stacks of the fibers");
    memory_ = static_cast<char*>(memory);
  }
  if (fiber.stack != nullptr) return;
  char* guard = memory_ + index * kStride;
  if (mprotect(guard, kGuard, PROT_NONE) != 0) {
    throw std::system_error(errno, std::generic_category(), "guard of a fiber's stack");
  }
  fiber.stack = guard + kGuard;
  fiber.stack_bytes = kStride - kGuard;
}

void prepare(Fiber& fiber, void (*entry)()) {
  void** top = reinterpret_cast<void**>(fiber.stack + fiber.stack_bytes) - 3;  // so that the call's stack is aligned
  *top = reinterpret_cast<void*>(&folio_simt_begin);
  void** registers = top - 6;  // r15 r14 r13 r12 rbx rbp
  for (int i = 0; i < 6; ++i) registers[i] = nullptr;
  registers[4] = reinterpret_cast<void*>(entry);
  fiber.stack_pointer = registers;
}

void switch_fiber(Fiber& from, Fiber& to, [[maybe_unused]] bool from_ends) {
#ifdef FOLIO_SIMT_ASAN
  __sanitizer_start_switch_fiber(from_ends ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
  folio_simt_switch(&from.stack_pointer, to.stack_pointer);
#ifdef FOLIO_SIMT_ASAN
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void abandon([[maybe_unused]] Fiber& fiber) {
#ifdef FOLIO_SIMT_ASAN
  __asan_unpoison_memory_region(fiber.stack, fiber.stack_bytes);
#endif
}

Fiber main_fiber() {
  Fiber fiber;
  pthread_attr_t attributes;
  if (const int error = pthread_getattr_np(pthread_self(), &attributes); error != 0) {
    throw std::system_error(error, std::generic_category(), "the main stack");
  }
  void* stack = nullptr;
  pthread_attr_getstack(&attributes, &stack, &fiber.stack_bytes);
  pthread_attr_destroy(&attributes);
  fiber.stack = static_cast<char*>(stack);
  return fiber;
}

}  // namespace folio::simt
