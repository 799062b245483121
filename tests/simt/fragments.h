// ldmatrix and mma.m16n8k16 for a whole warp, from the fragment layouts of the PTX ISA (8.x, "Matrix fragments for
// mma.m16n8k16 with floating point type", "ldmatrix"). Pure functions of what 32 lanes hold.
#pragma once
#include <array>
#include <cstdint>

namespace folio::simt {

// rows[8 i + r]: row r of matrix i, eight 16-bit elements. What lane `lane` gets of the four matrices.
void distribute_matrices(const std::array<const std::uint16_t*, 32>& rows, int lane, bool transposed, std::uint32_t* m);

struct MmaLane {
  float* d;                // [4]
  const std::uint32_t* a;  // [4]
  std::uint32_t b[2];
};
// d += a * b in all lanes. Each product is exact in float; the 16 of an element are added to d one by one by rising k.
template <bool kBf16>
void multiply_add_warp(const std::array<const MmaLane*, 32>& lanes);

}  // namespace folio::simt
