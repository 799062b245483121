// The avx512bf16 level: the avx512 table, with attention over bf16 K and V of its own. So all else gives avx512's bits.
#include "engine/kernels/cpu/simd_avx512.h"
// clang-format off
#include "engine/kernels/cpu/simd_bf16.h"
#include "engine/kernels/cpu/attention_chains.h"
#include "engine/kernels/cpu/attention_bf16.h"
#include "engine/kernels/cpu/attention_kernels.h"
// clang-format on

namespace folio::cpu {

KernelTable avx512bf16_kernels() {
  KernelTable table = avx512_kernels();
  table.name = "avx512bf16";
  set_attention<BFloat16>(table, KvType::kBF16);
  return table;
}

}  // namespace folio::cpu
