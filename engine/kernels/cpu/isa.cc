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

}  // namespace

const KernelTable& select_kernels(const std::string& isa) {
  if (isa == "scalar") return scalar_kernels();
  if (isa == "auto") return has_avx512() ? avx512_kernels() : has_avx2() ? avx2_kernels() : scalar_kernels();
  if (isa == "avx2" || isa == "avx512") {
    if (isa == "avx2" ? has_avx2() : has_avx512()) return isa == "avx2" ? avx2_kernels() : avx512_kernels();
    throw std::runtime_error("--isa " + isa + ": this CPU does not have that level; use --isa auto");
  }
  throw std::runtime_error("--isa " + isa + ": unknown; expected auto, avx512, avx2 or scalar");
}

}  // namespace folio::cpu
