// The memory checks of the build under AddressSanitizer: what may not be touched is poisoned.
#include <sanitizer/asan_interface.h>

#include <cstring>

#include "tests/simt/memory.h"
#include "tests/simt/runner.h"
#include "tests/simt/symbols.h"

namespace folio::simt::memory {
namespace {

constexpr std::size_t kArenaBytes = kMaxSharedBytes + (kMaxPieces + 1) * kPieceGuard;
alignas(1024) char arena[kArenaBytes];

// Of a thing that the runner does for a kernel.
void require_open(const char* what, const void* at, std::size_t bytes, const void* site) {
  if (__asan_region_is_poisoned(const_cast<void*>(at), bytes) == nullptr) return;
  throw SimtError(std::string(what) + " memory that may not be touched, at " + source_line(site));
}

}  // namespace

void end_of_stretch(int) {}

void begin_launch(std::uint32_t) {
  __asan_poison_memory_region(arena, kArenaBytes);
}

char* open_piece(std::size_t offset, std::size_t bytes) {
  __asan_unpoison_memory_region(arena + offset, bytes);
  std::memset(arena + offset, 0xff, bytes);
  return arena + offset;
}

void end_cta() {
  __asan_poison_memory_region(arena, kArenaBytes);
}

void read(const void* from, std::size_t bytes, const void* site) {
  require_open("a read of", from, bytes, site);
}

void take_off(void* to, const void* site) {
  require_open("a copy to", to, 16, site);
  std::memset(to, 0xff, 16);
  __asan_poison_memory_region(to, 16);
}

void land(void* to, const void*) {
  __asan_unpoison_memory_region(to, 16);
}

void add_buffer(char* begin, std::size_t bytes, std::size_t guard) {
  __asan_poison_memory_region(begin - guard, guard);
  __asan_poison_memory_region(begin + bytes, guard);
}

void remove_buffer(char* begin, std::size_t bytes, std::size_t guard) {
  __asan_unpoison_memory_region(begin - guard, bytes + 2 * guard);
}

}  // namespace folio::simt::memory
