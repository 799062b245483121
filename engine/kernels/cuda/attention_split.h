// How long the parts should be into which ranges of keys are cut for the CTAs of a machine.
#pragma once
#include <cstdint>
#include <span>

namespace folio::cuda {

struct SplitCosts {
  std::int32_t machine;     // parts that run at a time
  std::int32_t most_parts;  // nothing is cut if there would be more: a bound for buffers
  std::int32_t min_keys;    // of a part; a multiple of key_tile
  std::int32_t key_tile;    // parts are multiples of it
  std::int32_t part_cost;   // what a part costs on top of its keys, in keys
  std::int32_t merge_cost;  // what the merge costs if anything is cut, in keys
};

// The keys of a part: the cheapest of some lengths, by the smaller of two upper bounds for the time of parts that are
// taken in turn: (waves of parts) * (the longest), and (all keys / machine) + (the longest), Graham's bound for lists.
// The longest length if no cut is worth it.
std::int32_t choose_part_keys(std::span<const std::int32_t> lengths, const SplitCosts& costs);

}  // namespace folio::cuda
