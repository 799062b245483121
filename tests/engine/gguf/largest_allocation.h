// What a crafted count can make the program allocate: this program's operator new keeps the largest size asked for.
#pragma once
#include <cstddef>

namespace folio::testing {

void forget_allocations();
std::size_t largest_allocation();  // bytes, since the last call of forget_allocations

}  // namespace folio::testing
