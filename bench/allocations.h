// How often this program asked for heap memory: it has an operator new of its own that counts.
#pragma once
#include <cstdint>

namespace folio::bench {

std::int64_t num_allocations();  // of all threads, since the start

}  // namespace folio::bench
