// What g++ calls before each access of code that it compiles for ThreadSanitizer, in place of that tool's run time.
// Names and meaning are those of its interface (compiler-rt, tsan_interface.h). There are no atomics: kernels use none.
#include <cstddef>

#include "tests/simt/machine.h"
#include "tests/simt/memory_race.h"

namespace {

inline void see(const void* at, std::size_t bytes, bool write, const void* site) {
  if (folio::simt::kernel_code_runs) folio::simt::memory::on_access(at, bytes, write, site);
}

}  // namespace

extern "C" {

void __tsan_init() {}

#define FOLIO_SIMT_HOOKS(bytes)                         \
  void __tsan_read##bytes(void* at) {                   \
    see(at, bytes, false, __builtin_return_address(0)); \
  }                                                     \
  void __tsan_write##bytes(void* at) {                  \
    see(at, bytes, true, __builtin_return_address(0));  \
  }                                                     \
  void __tsan_unaligned_read##bytes(void* at) {         \
    see(at, bytes, false, __builtin_return_address(0)); \
  }                                                     \
  void __tsan_unaligned_write##bytes(void* at) {        \
    see(at, bytes, true, __builtin_return_address(0));  \
  }
FOLIO_SIMT_HOOKS(1)
FOLIO_SIMT_HOOKS(2)
FOLIO_SIMT_HOOKS(4)
FOLIO_SIMT_HOOKS(8)
FOLIO_SIMT_HOOKS(16)
#undef FOLIO_SIMT_HOOKS

void __tsan_read_range(void* at, std::size_t bytes) {
  see(at, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(void* at, std::size_t bytes) {
  see(at, bytes, true, __builtin_return_address(0));
}
// Calls of the kernels' own code, by the linker's --wrap.
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __real_memset(void* to, int value, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  see(from, bytes, false, __builtin_return_address(0));
  see(to, bytes, true, __builtin_return_address(0));
  return __real_memcpy(to, from, bytes);
}
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  see(to, bytes, true, __builtin_return_address(0));
  return __real_memset(to, value, bytes);
}

void __tsan_vptr_update(void**, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
}
