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

// Whether a level's results over a KV type are not by construction those of the level below.
inline bool has_own(const std::string& level, const std::string& kv_type) {
  return level != "avx512bf16" || kv_type == "bf16";
}
inline std::vector<KvType> kv_types_of(const std::string& level) {
  std::vector<KvType> types(std::begin(kAllKvTypes), std::end(kAllKvTypes));
  std::erase_if(types, [&](KvType type) { return !has_own(level, name_of(type)); });
  return types;
}

}  // namespace folio::cpu
