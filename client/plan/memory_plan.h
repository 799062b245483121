// How much memory K and V take, and how many users fit: plain arithmetic, over the layout of the engine's own cache
// (engine/kernels/kv_cache.h), so that a plan is what a server will do.
//
// Worked example, blocks of 16: 3 users of 100 tokens, all of which begin with the same 40. A context is 7 blocks. Of
// the prefix 2 blocks are whole and shared; the third is half the prefix's, so each user has a copy of its own. 2
// shared and 3 x 5 own make 17 blocks, where without sharing there were 21.
#pragma once
#include <cstdint>

#include "engine/kernels/kv_cache.h"

namespace folio::client {

// The numbers that a token's K and V follow from: 2 x layers x kv_heads x head_dim values.
struct KvShape {
  std::int32_t layers = 0;
  std::int32_t heads = 0;     // of queries
  std::int32_t kv_heads = 0;  // as many: MHA; 1: MQA; between: GQA
  std::int32_t head_dim = 0;

  static constexpr std::int32_t kMost = 65536;  // of each: below it nothing of a block overflows
};

// Without blocks; what one of them takes.
KvCacheLayout layout_of(const KvShape& shape, KvType type, std::int32_t block_size);
// block_bytes() is a multiple of the block size.
std::uint64_t token_bytes(const KvCacheLayout& layout);

// Who is to have a place. Every count is at most kMost.
struct Crowd {
  std::int64_t users = 1;
  std::int64_t context = 1;        // tokens of each, prompt and answer
  std::int64_t prefix_tokens = 0;  // that those who share begin with; at least one token of each is its own
  double prefix_share = 1;         // the part of the users who do, 0 to 1

  static constexpr std::int64_t kMost = 1'000'000'000;

  std::int64_t num_sharing() const { return static_cast<std::int64_t>(static_cast<double>(users) * prefix_share); }
};

// Blocks of the crowd with all contexts full. A shared prefix's whole blocks count once; the rest of it is copied.
struct BlockNeed {
  std::int64_t a_user = 0;  // who shares nothing
  std::int64_t shared = 0;  // by those who share
  std::int64_t all = 0;
};
BlockNeed block_need(const Crowd& crowd, std::int32_t block_size);

// Blocks that folio makes of this much memory: one more is never given out. 0: none.
std::int64_t blocks_in(std::uint64_t bytes, std::uint64_t block_bytes);

// The most users like the crowd's that `num_blocks` hold (its own number does not count).
std::int64_t users_that_fit(const Crowd& crowd, std::int32_t block_size, std::int64_t num_blocks);
// The longest context with which all of the crowd's users fit; 0: none.
std::int64_t context_that_fits(const Crowd& crowd, std::int32_t block_size, std::int64_t num_blocks);

}  // namespace folio::client
