// Which CPU level runs: the best that this machine has, or a lower one by name.
#pragma once
#include <string>

#include "engine/kernels/cpu/kernel_table.h"

namespace folio::cpu {

// "auto", "avx512bf16", "avx512", "avx2" or "scalar". Throws std::runtime_error: unknown name, or a level that this CPU
// lacks.
const KernelTable& select_kernels(const std::string& isa);

}  // namespace folio::cpu
