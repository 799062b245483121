#include "engine/kernels/cpu/isa.h"

#include <cpuid.h>

#include <stdexcept>

namespace folio::cpu {
namespace {

// Clang 16 has no word for it in __builtin_cpu_supports.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
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
