// How often this program asked for heap memory. The source file replaces operator new and delete of the program that
// has it among its sources: tests and benchmarks that count.
#pragma once
#include <cstdint>

namespace folio {

std::int64_t num_allocations();  // of all threads, since the start

}  // namespace folio
