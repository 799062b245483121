// Sequences whose block tables begin with the same blocks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace folio::cuda {

// Fewer are not worth a partial and a merge for each.
inline constexpr std::int32_t kMinSharers = 4;
inline constexpr std::int32_t kMinSharedKeys = 256;

struct PrefixCandidate {
  std::int32_t first_block = 0;  // into block_ids
  std::int32_t num_blocks = 0;   // that may be shared
};

struct SharedPrefix {
  std::int32_t num_blocks = 0;
  std::vector<std::int32_t> members;  // candidates, ascending
};

// Disjoint sets of at least kMinSharers candidates, all of whose tables begin with the same blocks of at least
// kMinSharedKeys keys. One level: of a tree of prefixes, what all of a set have.
std::vector<SharedPrefix> find_shared_prefixes(std::span<const BlockId> block_ids,
                                               std::span<const PrefixCandidate> candidates, std::int32_t block_size);

}  // namespace folio::cuda
