#include "engine/kernels/cuda/block_copy.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/simt/device_buffer.h"

namespace folio::cuda {
namespace {

// Every byte of the copied blocks is the source's, in every layer; every other byte is as it was.
TEST(BlockCopyTest, CopiesBlocksAndNothingElse) {
  for (const KvElement element : {KvElement::kBF16, KvElement::kInt8}) {
    const KvLayout layout{
        .num_layers = 3, .num_kv_heads = 2, .head_dim = 80, .block_size = 16, .num_blocks = 6, .element = element};
    std::vector<std::uint8_t> before(layout.total_bytes());
    for (std::size_t i = 0; i < before.size(); ++i) before[i] = static_cast<std::uint8_t>(i * 2654435761U >> 13);
    const std::vector<int2> copies{{1, 5}, {6, 2}, {1, 3}};
    std::vector<std::uint8_t> expected = before;
    for (std::int32_t layer = 0; layer < layout.num_layers; ++layer) {
      for (const int2 copy : copies) {
        const auto from = before.begin() + static_cast<std::ptrdiff_t>(layout.head_offset(layer, copy.x, 0));
        std::copy_n(from, layout.block_bytes_per_layer(),
                    expected.begin() + static_cast<std::ptrdiff_t>(layout.head_offset(layer, copy.y, 0)));
      }
    }
    simt::in_every_order([&](simt::Order) {
      simt::DeviceBuffer<std::uint8_t> cache(before);
      const simt::DeviceBuffer<int2> pairs(copies);
      copy_blocks(layout, cache.data(), pairs.data(), 3, nullptr);
      EXPECT_TRUE(cache.to_vector() == expected);
    });
  }
}

TEST(BlockCopyTest, NoCopiesTouchNothing) {
  copy_blocks(KvLayout{.num_layers = 3, .num_kv_heads = 2, .head_dim = 64, .num_blocks = 2}, nullptr, nullptr, 0,
              nullptr);
}

}  // namespace
}  // namespace folio::cuda
