// Where K and V live. KvCacheLayout is the only address arithmetic; KvCache is the memory behind it.
//
// One block holds block_size token positions over all layers, as [layer][block][kv head]{K, V}. K and V of one (block,
// head) are contiguous, in groups of 16 tokens:
//   K  [group][dim][16 tokens]       one vector load takes 16 tokens' keys of a dimension: no horizontal sums
//   V  [token][dim, padded to 16]    one vector load takes 16 dimensions of a token
// Every slot holds finite values at all times (zeroed at start, clamped when written), so that a masked key contributes
// exactly 0 whatever stood there before.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/thread_pool.h"

namespace folio {

enum class KvType : std::uint8_t { kF16, kF32 };

inline constexpr int kKeyGroup = 16;  // tokens of a vector load; block_size is a multiple of it

struct KvCacheLayout {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 16;
  std::int32_t num_blocks = 0;  // usable; block 0, the null block, comes on top
  KvType type = KvType::kF16;

  std::size_t element_bytes() const { return type == KvType::kF16 ? 2 : 4; }
  std::int32_t padded_dim() const { return (head_dim + kKeyGroup - 1) / kKeyGroup * kKeyGroup; }
  std::size_t key_bytes() const { return element_bytes() * static_cast<std::size_t>(head_dim * block_size); }
  std::size_t value_bytes() const { return element_bytes() * static_cast<std::size_t>(padded_dim() * block_size); }
  std::size_t head_bytes() const { return key_bytes() + value_bytes(); }
  std::size_t block_bytes_per_layer() const { return head_bytes() * static_cast<std::size_t>(num_kv_heads); }
  std::size_t block_bytes() const { return block_bytes_per_layer() * static_cast<std::size_t>(num_layers); }
  std::size_t total_bytes() const { return block_bytes() * (static_cast<std::size_t>(num_blocks) + 1); }

  // Byte offsets from the cache's start.
  std::size_t head_offset(int layer, BlockId block, int kv_head) const {
    const auto row =
        static_cast<std::size_t>(layer) * (static_cast<std::size_t>(num_blocks) + 1) + static_cast<std::size_t>(block);
    return row * block_bytes_per_layer() + static_cast<std::size_t>(kv_head) * head_bytes();
  }
  // Keys of the 16-token group `group` of a block: [dim][16].
  std::size_t key_group_offset(int layer, BlockId block, int kv_head, int group) const {
    return head_offset(layer, block, kv_head) +
           element_bytes() * static_cast<std::size_t>(group * head_dim * kKeyGroup);
  }
  // Values of the same tokens: [16][padded_dim].
  std::size_t value_group_offset(int layer, BlockId block, int kv_head, int group) const {
    return head_offset(layer, block, kv_head) + key_bytes() +
           element_bytes() * static_cast<std::size_t>(group * padded_dim() * kKeyGroup);
  }
};

// The memory: anonymous and so zero, huge pages where the system gives them, every page touched when made (by the
// pool's threads), so that a lack of memory shows at start.
class KvCache {
 public:
  KvCache(const KvCacheLayout& layout, ThreadPool& pool);  // throws std::runtime_error with the size that cannot be had
  ~KvCache();
  KvCache(const KvCache&) = delete;
  KvCache& operator=(const KvCache&) = delete;

  const KvCacheLayout& layout() const { return layout_; }
  std::byte* data() const { return data_; }
  void copy_block(BlockId from, BlockId to);
  // Every slot to this value, which fits the type. For tests: a large finite poison shows a read of a slot never
  // written.
  void fill(float value);

 private:
  KvCacheLayout layout_;
  std::byte* data_ = nullptr;
};

}  // namespace folio
