// In a file of its own: a compiler that sees malloc behind new takes free() behind delete for a mistake.
#include "tests/scheduler/count_new.h"

#include <cstdlib>
#include <new>

std::int64_t folio::num_allocations = 0;

// NOLINTBEGIN: malloc is what these stand for
void* operator new(std::size_t size) {
  ++folio::num_allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
// NOLINTEND
