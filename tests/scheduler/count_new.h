// Replaces operator new and delete of the program that links it, and counts. One thread.
#pragma once
#include <cstdint>

namespace folio {

extern std::int64_t num_allocations;  // since the program began

}  // namespace folio
