// What tests ask the twin of the CUDA runtime.
#pragma once
#include <cstdint>

namespace folio::simt {

std::int64_t num_graphs_launched();  // since the program began
void fail_next_product();            // of cuBLASLt: it throws

}  // namespace folio::simt
