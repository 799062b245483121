// The CPU levels that this machine can run, by name.
#pragma once
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/kernels/cpu/isa.h"
#include "tests/engine/kernels/kv_reader.h"

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

// Without avx512bf16, which is avx512 in all but attention over bf16 (levels_test.cc): for tests of anything else.
inline std::vector<std::string> levels_outside_attention() {
  std::vector<std::string> levels = available_levels();
  std::erase(levels, "avx512bf16");
  return levels;
}

// The KV types whose attention a level does not share with the one below.
inline std::vector<KvType> kv_types_of(const std::string& level) {
  if (level == "avx512bf16") return {KvType::kBF16};
  return {std::begin(kAllKvTypes), std::end(kAllKvTypes)};
}

}  // namespace folio::cpu
