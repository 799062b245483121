// What the runner asks of its memory checks. Two builds implement it: memory_asan.cc and memory_race.cc. A fault is a
// SimtError or, where AddressSanitizer finds it, ends the process. `site` is a return address in the kernel.
#pragma once
#include <cstddef>
#include <cstdint>

namespace folio::simt::memory {

// A launch's accesses come after all of earlier launches.
void begin_launch(std::uint32_t first_cta);  // as in Moment
// A piece of shared memory at `offset`, filled with 0xff. What lies between the pieces of a CTA may not be touched.
char* open_piece(std::size_t offset, std::size_t bytes);
// Closes all pieces.
void end_cta();

// An access that is made for the running thread by the runner, not by the kernel's code.
void read(const void* from, std::size_t bytes, const void* site);
// A copy of 16 bytes is on its way to `to`: 0xff there until land(), and closed.
void take_off(void* to, const void* site);
void land(void* to, const void* site);

// All lanes of the warp have come to one place in the source: what they accessed since the last one can be matched.
void end_of_stretch(int warp);

// Device memory of a test: [begin, begin + bytes) may be used, `guard` bytes on both sides may not.
void add_buffer(char* begin, std::size_t bytes, std::size_t guard);
void remove_buffer(char* begin, std::size_t bytes, std::size_t guard);

inline constexpr std::size_t kMaxSharedBytes = 163 * 1024;  // of a CTA on sm_80, the smallest of our devices
// Between pieces. All 32 banks wide, so that banks are those on the device.
inline constexpr std::size_t kPieceGuard = 128;
inline constexpr std::size_t kMaxPieces = 64;

}  // namespace folio::simt::memory
