// The operations behind device_twin.h: called by threads of a kernel.
#pragma once
#include <cstdint>
#include <source_location>

namespace folio::simt {

using Where = std::source_location;

void sync_cta(Where where);
void sync_warp(Where where);
// The bits that lane `lane` of the warp gave.
std::uint64_t exchange(const char* operation, std::uint64_t bits, int lane, Where where);
std::uint32_t vote(bool predicate, Where where);
// `offset`: what the thread took before, in bytes on the device.
void* take_shared(int offset, int bytes, Where where);

void copy_16(void* to, const void* from);  // nullptr: zeros
void commit_copies();
void wait_copies(int pending);

void load_matrices(std::uint32_t (&m)[4], const void* row, bool transposed, Where where);
void multiply_add(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1, bool bf16,
                  Where where);

}  // namespace folio::simt
