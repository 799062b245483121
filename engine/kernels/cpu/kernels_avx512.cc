// The avx512 level: the shared kernels over this level's vector type. Everything but the table is local to this file.
#include "engine/kernels/cpu/simd_avx512.h"
// clang-format off
#include "engine/kernels/cpu/matmul_kernels.h"
#include "engine/kernels/cpu/attention_chains.h"
#include "engine/kernels/cpu/row_kernels.h"
#include "engine/kernels/cpu/attention_float.h"
#include "engine/kernels/cpu/attention_int8.h"
#include "engine/kernels/cpu/attention_kernels.h"
#include "engine/kernels/cpu/attention_merge.h"
#include "engine/kernels/cpu/level_table.h"
// clang-format on

namespace folio::cpu {

const KernelTable& avx512_kernels() {
  static constexpr KernelTable kTable = level_table("avx512");
  return kTable;
}

}  // namespace folio::cpu
