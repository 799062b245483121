// Philox 4x32-10: random bits as a pure function of a counter and a key. Source: Salmon, Moraes, Dror, Shaw, "Parallel
// Random Numbers: As Easy as 1, 2, 3", SC 2011.
#pragma once
#include <array>
#include <cstdint>

namespace folio {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

}  // namespace folio
