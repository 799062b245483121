#include "engine/kernels/cuda/attention_prefix.h"

#include <algorithm>
#include <utility>

namespace folio::cuda {

std::vector<SharedPrefix> find_shared_prefixes(std::span<const BlockId> block_ids,
                                               std::span<const PrefixCandidate> candidates, std::int32_t block_size) {
  const std::int32_t min_blocks = (kMinSharedKeys + block_size - 1) / block_size;
  const auto table = [&](std::int32_t member) {
    const PrefixCandidate& candidate = candidates[static_cast<std::size_t>(member)];
    return block_ids.subspan(static_cast<std::size_t>(candidate.first_block),
                             static_cast<std::size_t>(candidate.num_blocks));
  };
  // Those that share min_blocks share the last of these; that they share the others too is looked at below.
  std::vector<std::pair<BlockId, std::int32_t>> by_block;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].num_blocks < min_blocks) continue;
    const auto member = static_cast<std::int32_t>(i);
    by_block.emplace_back(table(member)[static_cast<std::size_t>(min_blocks) - 1], member);
  }
  std::sort(by_block.begin(), by_block.end());
  std::vector<SharedPrefix> prefixes;
  for (auto first = by_block.begin(); first != by_block.end();) {
    const auto end =
        std::find_if(first, by_block.end(), [&](const auto& entry) { return entry.first != first->first; });
    const auto model = table(first->second);
    SharedPrefix prefix{static_cast<std::int32_t>(model.size()), {}};
    for (; first != end; ++first) {
      const auto other = table(first->second);
      const auto same = std::mismatch(model.begin(), model.end(), other.begin(), other.end()).first - model.begin();
      if (same < min_blocks) continue;
      prefix.num_blocks = std::min(prefix.num_blocks, static_cast<std::int32_t>(same));
      prefix.members.push_back(first->second);
    }
    if (static_cast<std::int32_t>(prefix.members.size()) >= kMinSharers) prefixes.push_back(std::move(prefix));
  }
  return prefixes;
}

}  // namespace folio::cuda
