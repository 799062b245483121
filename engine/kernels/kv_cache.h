// Where K and V live. KvCacheLayout is the only address arithmetic; KvCache is the memory behind it.
//
// One block holds block_size token positions over all layers, as [layer][block][kv head]{K, V}. K and V of one (block,
// head) are contiguous, in groups of 16 tokens. `pack` elements of a lane lie side by side, so that one 64-byte load is
// a unit of 16 lanes whatever the type (f16: 32 bytes):
//   type  pack  K of a group             V of a group                  then, after K and after V
//   f16   1     [dim][16 tokens]         [16 tokens][dim]
//   f32   1     the same                 the same
//   bf16  2     [dim/2][16 tokens][2]    [16/2 tokens][dim][2]
//   int8  4     [dim/4][16 tokens][4]    [16/4 tokens][dim][4]         [16 tokens] float scales
// One vector load takes 16 tokens' keys of a dimension, or 16 dimensions of a token's value: no horizontal sums. K's
// dims are padded to `pack`, V's to 16. int8: value = q * scale; V's q is signed, K's is stored as q + 128, since the
// byte dot products of these CPUs take one unsigned operand. A token of one head takes 2 * (head_dim + 4) bytes in int8
// where f16 takes 4 * head_dim (head_dim a multiple of 16): 53.1 % at 64, 51.6 % at 128, 50.8 % at 256.
// Every slot holds finite values at all times (zeroed at start, clamped when written), so that a masked key contributes
// exactly 0 whatever stood there before. Zeroed memory is finite in every type.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/ids.h"
#include "base/thread_pool.h"
#include "engine/kernels/kv_type.h"

namespace folio {

inline constexpr int kKeyGroup = 16;  // tokens of a vector load; block_size is a multiple of it

struct KvCacheLayout {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 16;
  std::int32_t num_blocks = 0;  // usable; block 0, the null block, comes on top
  KvType type = KvType::kF16;

  std::size_t element_bytes() const { return type == KvType::kF32 ? 4 : type == KvType::kInt8 ? 1 : 2; }
  std::int32_t pack() const { return type == KvType::kInt8 ? 4 : type == KvType::kBF16 ? 2 : 1; }
  std::size_t scale_bytes() const { return type == KvType::kInt8 ? kKeyGroup * sizeof(float) : 0; }  // of a group
  std::int32_t padded_key_dim() const { return (head_dim + pack() - 1) / pack() * pack(); }
  std::int32_t padded_dim() const { return (head_dim + kKeyGroup - 1) / kKeyGroup * kKeyGroup; }
  // Inside a group: where the scales begin, if the type has any.
  std::size_t key_scales_at() const { return element_bytes() * static_cast<std::size_t>(padded_key_dim() * kKeyGroup); }
  std::size_t value_scales_at() const { return element_bytes() * static_cast<std::size_t>(padded_dim() * kKeyGroup); }
  std::size_t key_group_bytes() const { return key_scales_at() + scale_bytes(); }
  std::size_t value_group_bytes() const { return value_scales_at() + scale_bytes(); }
  std::size_t groups() const { return static_cast<std::size_t>(block_size / kKeyGroup); }
  std::size_t head_bytes() const { return (key_group_bytes() + value_group_bytes()) * groups(); }
  std::size_t block_bytes_per_layer() const { return head_bytes() * static_cast<std::size_t>(num_kv_heads); }
  std::size_t block_bytes() const { return block_bytes_per_layer() * static_cast<std::size_t>(num_layers); }
  std::size_t total_bytes() const { return block_bytes() * (static_cast<std::size_t>(num_blocks) + 1); }

  // Byte offsets from the cache's start.
  std::size_t head_offset(int layer, BlockId block, int kv_head) const {
    const auto row =
        static_cast<std::size_t>(layer) * (static_cast<std::size_t>(num_blocks) + 1) + static_cast<std::size_t>(block);
    return row * block_bytes_per_layer() + static_cast<std::size_t>(kv_head) * head_bytes();
  }
  // Keys of the 16-token group `group` of a block.
  std::size_t key_group_offset(int layer, BlockId block, int kv_head, int group) const {
    return head_offset(layer, block, kv_head) + key_group_bytes() * static_cast<std::size_t>(group);
  }
  // Values of the same tokens.
  std::size_t value_group_offset(int layer, BlockId block, int kv_head, int group) const {
    return head_offset(layer, block, kv_head) + key_group_bytes() * groups() +
           value_group_bytes() * static_cast<std::size_t>(group);
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
  // Every slot to this value, which fits the type, or to one close by that the type holds. For tests: a large finite
  // poison shows a read of a slot never written.
  void fill(float value);

 private:
  void fill_int8(float value);

  KvCacheLayout layout_;
  std::byte* data_ = nullptr;
};

}  // namespace folio
