#include "client/plan/memory_plan.h"

#include <algorithm>

namespace folio::client {
namespace {

// The largest n in [0, most] that `fits`, which holds up to some n and not above it. 0 fits.
template <class Fits>
std::int64_t largest(std::int64_t most, const Fits& fits) {
  std::int64_t low = 0, high = most + 1;  // low fits, high does not, or is not asked
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

KvCacheLayout layout_of(const KvShape& shape, KvType type, std::int32_t block_size) {
  KvCacheLayout layout;
  layout.num_layers = shape.layers;
  layout.num_kv_heads = shape.kv_heads;
  layout.head_dim = shape.head_dim;
  layout.block_size = block_size;
  layout.type = type;
  return layout;
}

std::uint64_t token_bytes(const KvCacheLayout& layout) {
  return layout.block_bytes() / static_cast<std::uint64_t>(layout.block_size);
}

BlockNeed block_need(const Crowd& crowd, std::int32_t block_size) {
  BlockNeed need;
  need.a_user = (crowd.context + block_size - 1) / block_size;
  const std::int64_t sharing = crowd.num_sharing();
  if (sharing > 1) need.shared = std::min(crowd.prefix_tokens, crowd.context - 1) / block_size;
  need.all = need.shared + sharing * (need.a_user - need.shared) + (crowd.users - sharing) * need.a_user;
  return need;
}

std::int64_t blocks_in(std::uint64_t bytes, std::uint64_t block_bytes) {
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(bytes / block_bytes) - 1);
}

std::int64_t users_that_fit(const Crowd& crowd, std::int32_t block_size, std::int64_t num_blocks) {
  return largest(std::min(num_blocks, Crowd::kMost), [&](std::int64_t users) {
    Crowd other = crowd;
    other.users = users;
    return block_need(other, block_size).all <= num_blocks;
  });
}

std::int64_t context_that_fits(const Crowd& crowd, std::int32_t block_size, std::int64_t num_blocks) {
  return largest(Crowd::kMost, [&](std::int64_t context) {
    if (context == 0) return true;
    Crowd other = crowd;
    other.context = context;
    return block_need(other, block_size).all <= num_blocks;
  });
}

}  // namespace folio::client
