// What the tests of one level may leave to another's.
#include "tests/engine/kernels/levels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace folio::cpu {
namespace {

TEST(Levels, Avx512Bf16IsAvx512ButForAttentionOverBf16) {
  const std::vector<std::string> levels = available_levels();
  if (std::find(levels.begin(), levels.end(), "avx512bf16") == levels.end()) {
    GTEST_SKIP() << "this CPU lacks AVX512_BF16";
  }
  const KernelTable& avx512 = select_kernels("avx512");
  KernelTable table = select_kernels("avx512bf16");
  const auto bf16 = static_cast<int>(KvType::kBF16);
  EXPECT_NE(table.prepare_query[bf16], avx512.prepare_query[bf16]);
  EXPECT_NE(table.attend[bf16], avx512.attend[bf16]);
  table.name = avx512.name;
  table.prepare_query[bf16] = avx512.prepare_query[bf16];
  table.attend[bf16] = avx512.attend[bf16];
  static_assert(std::has_unique_object_representations_v<KernelTable>);  // pointers alone: all fields are compared
  EXPECT_EQ(std::memcmp(&table, &avx512, sizeof table), 0);
}

}  // namespace
}  // namespace folio::cpu
