#include "tests/engine/gguf/largest_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::size_t> largest{0};
}

void* operator new(std::size_t size) {
  if (size > largest) largest = size;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace folio::testing {

void forget_allocations() {
  largest = 0;
}
std::size_t largest_allocation() {
  return largest;
}

}  // namespace folio::testing
