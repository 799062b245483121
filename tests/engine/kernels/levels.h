// The CPU levels that this machine can run, by name.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/kernels/cpu/isa.h"

namespace folio::cpu {

inline std::vector<std::string> available_levels() {
  std::vector<std::string> levels;
  for (const char* name : {"scalar", "avx2", "avx512", "avx512bf16"}) {
    try {
      select_kernels(name);
      levels.emplace_back(name);
    } catch (const std::runtime_error&) {
    }
  }
  return levels;
}

}  // namespace folio::cpu
