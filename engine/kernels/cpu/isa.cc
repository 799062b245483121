#include "engine/kernels/cpu/isa.h"

#include <stdexcept>

namespace folio::cpu {
namespace {

bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
         __builtin_cpu_supports("f16c") != 0;
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
         __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
         __builtin_cpu_supports("avx512vnni") != 0;
}

bool has_avx512bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16") != 0;
}

const KernelTable& avx512bf16_table() {
  static const KernelTable kTable = avx512bf16_kernels();
  return kTable;
}

// From the best down.
constexpr struct {
  const char* name;
  bool (*is_here)();
  const KernelTable& (*kernels)();
} kLevels[] = {
    {"avx512bf16", has_avx512bf16, avx512bf16_table},
    {"avx512", has_avx512, avx512_kernels},
    {"avx2", has_avx2, avx2_kernels},
    {"scalar", [] { return true; }, scalar_kernels},
};

}  // namespace

const KernelTable& select_kernels(const std::string& isa) {
  for (const auto& level : kLevels) {
    if (isa != "auto" && isa != level.name) continue;
    if (level.is_here()) return level.kernels();
    if (isa != "auto") {
      throw std::runtime_error("--isa " + isa + ": this CPU does not have that level; use --isa auto");
    }
  }
  throw std::runtime_error("--isa " + isa + ": unknown; expected auto, avx512bf16, avx512, avx2 or scalar");
}

}  // namespace folio::cpu
