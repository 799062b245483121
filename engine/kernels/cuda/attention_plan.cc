#include "engine/kernels/cuda/attention_plan.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "engine/kernels/cuda/attention_prefix.h"
#include "engine/kernels/cuda/attention_split.h"

namespace folio::cuda {
namespace {

// The CTAs of a kernel that fill an SM, the fewest keys that are worth one, and what starting one and merging what it
// writes costs, in keys. Estimates from the resources of the kernels (docs/performance.md).
struct KernelShape {
  std::int32_t ctas_per_sm;
  std::int32_t min_keys;
  std::int32_t cta_cost;
  std::int32_t waves;  // of CTAs, at most, where anything is cut
};
constexpr KernelShape kRowsKernel{3, 256, 64, 12};
constexpr KernelShape kTilesKernel{1, 512, 256, 4};
constexpr std::int32_t kMergeCost = 128;
constexpr std::int32_t kKeyTile = 64;  // ranges of keys begin at multiples of it, but where the item itself begins

// Deterministic: partials of a plan beyond one for each token, as multiples of what fills the machine.
constexpr std::int32_t kFoldWaves = 32;

std::int32_t first_visible(std::int32_t position, std::int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

std::int32_t machine_items(const AttentionSetup& setup, KernelShape kernel) {
  return std::max(1, setup.num_sms * kernel.ctas_per_sm / setup.num_kv_heads);
}

class Planner {
 public:
  Planner(const StepBatch& batch, const AttentionSetup& setup, AttentionPlan& plan)
      : batch_(batch), setup_(setup), plan_(plan) {}

  void run() {
    plan_.tile_items.clear();
    plan_.row_items.clear();
    plan_.rows.clear();
    plan_.merges.clear();
    plan_.merged_partials.clear();
    plan_.num_partials = 0;
    plan_.fold_keys = setup_.deterministic ? kFoldKeys : 0;
    for (std::int32_t s = 0; s < batch_.num_sequences(); ++s) add_sequence(s);
    if (!setup_.deterministic && setup_.window == 0) share_prefixes();
    if (setup_.deterministic) {
      cut_into_folds();
    } else {
      cut(tiles_, kTilesKernel, plan_.tile_items);
      cut(decodes_, kRowsKernel, plan_.row_items);
    }
    merge();
    longest_first(plan_.tile_items);
    longest_first(plan_.row_items);
  }

 private:
  // An item before it is cut. One that shares its tokens with others writes partials even if it is not cut.
  struct Uncut {
    AttentionItem item;
    bool is_part = false;
  };

  void add_sequence(std::int32_t s) {
    const auto at = static_cast<std::size_t>(s);
    const std::int32_t begin = batch_.query_start[at];
    const std::int32_t end = batch_.query_start[at + 1];
    const bool is_decode = end - begin == 1;
    for (std::int32_t token = begin; token < end; token += setup_.tile_tokens()) {
      AttentionItem item;
      item.first_row = static_cast<std::int32_t>(plan_.rows.size());
      item.num_rows = std::min(setup_.tile_tokens(), end - token);
      item.first_block = batch_.block_start[at];
      item.key_begin = first_visible(position(token), setup_.window);
      item.key_end = position(token + item.num_rows - 1) + 1;
      for (std::int32_t i = 0; i < item.num_rows; ++i) plan_.rows.push_back(token + i);
      (is_decode && !setup_.deterministic ? decodes_ : tiles_).push_back({item});
    }
  }

  // Before anything is cut: decodes_ has one item for each sequence of one token.
  void share_prefixes() {
    std::vector<PrefixCandidate> candidates;
    for (const Uncut& decode : decodes_) {
      candidates.push_back({decode.item.first_block, (decode.item.key_end - 1) / setup_.block_size});
    }
    for (const SharedPrefix& prefix : find_shared_prefixes(batch_.block_ids, candidates, setup_.block_size)) {
      const std::int32_t keys = prefix.num_blocks * setup_.block_size;
      for (std::size_t i = 0; i < prefix.members.size(); ++i) {
        Uncut& decode = decodes_[static_cast<std::size_t>(prefix.members[i])];
        decode.item.key_begin = keys;
        decode.is_part = true;
        if (i % static_cast<std::size_t>(setup_.tile_tokens()) == 0) {
          const auto first_row = static_cast<std::int32_t>(plan_.rows.size());
          tiles_.push_back({{first_row, 0, decode.item.first_block, 0, keys, -1}, true});
        }
        ++tiles_.back().item.num_rows;
        plan_.rows.push_back(plan_.rows[static_cast<std::size_t>(decode.item.first_row)]);
      }
    }
  }

  void cut(const std::vector<Uncut>& uncut, KernelShape kernel, std::vector<AttentionItem>& items) {
    lengths_.clear();
    for (const Uncut& part : uncut) {
      lengths_.push_back(part.item.key_end - part.item.key_begin / kKeyTile * kKeyTile);
    }
    const SplitCosts costs{.machine = machine_items(setup_, kernel),
                           .most_parts = kernel.waves * machine_items(setup_, kernel),
                           .min_keys = kernel.min_keys,
                           .key_tile = kKeyTile,
                           .part_cost = kernel.cta_cost,
                           .merge_cost = kMergeCost};
    const std::int32_t most = choose_part_keys(lengths_, costs);
    for (const Uncut& part : uncut) {
      add_parts(part.item, part.item.key_begin / kKeyTile * kKeyTile, most, part.is_part, items);
    }
  }

  // Parts of `most` keys counted from the origin.
  void add_parts(const AttentionItem& item, std::int32_t origin, std::int32_t most, bool is_part,
                 std::vector<AttentionItem>& items) {
    is_part = is_part || item.key_end - origin > most;
    for (std::int32_t begin = origin; begin < item.key_end; begin += most) {
      AttentionItem part = item;
      part.key_begin = std::max(begin, item.key_begin);
      part.key_end = std::min(begin + most, item.key_end);
      if (is_part) {
        part.first_partial = plan_.num_partials;
        plan_.num_partials += item.num_rows;
      }
      items.push_back(part);
    }
  }

  // Runs of kFoldKeys become CTAs of their own if there are too few items to fill the machine and room for partials,
  // items with most keys first. Where there is not, the item's CTA takes them in turn: the same bits.
  void cut_into_folds() {
    const std::int32_t machine = machine_items(setup_, kTilesKernel);
    std::int32_t room = static_cast<std::int32_t>(tiles_.size()) < machine ? kFoldWaves * machine : 0;
    std::stable_sort(tiles_.begin(), tiles_.end(),
                     [](const Uncut& a, const Uncut& b) { return a.item.key_end > b.item.key_end; });
    for (const Uncut& tile : tiles_) {
      const AttentionItem& item = tile.item;
      const std::int32_t runs = (item.key_end - 1) / kFoldKeys + 1 - item.key_begin / kFoldKeys;
      const std::int32_t partials = runs * item.num_rows;
      if (runs > 1 && partials <= room) {
        room -= partials;
        add_parts(item, item.key_begin / kFoldKeys * kFoldKeys, kFoldKeys, false, plan_.tile_items);
      } else {
        plan_.tile_items.push_back(item);
      }
    }
  }

  // A merge for each token that has partials: first those of a prefix, then its own, which is the order of keys.
  void merge() {
    counts_.assign(static_cast<std::size_t>(batch_.query_start.empty() ? 0 : batch_.query_start.back()), 0);
    const std::array lists{&plan_.tile_items, &plan_.row_items};
    for (const auto* items : lists) {
      for_partials(*items, [this](std::int32_t token, std::int32_t) { ++counts_[static_cast<std::size_t>(token)]; });
    }
    std::int32_t total = 0;
    for (std::size_t token = 0; token < counts_.size(); ++token) {
      if (counts_[token] == 0) continue;
      plan_.merges.push_back({static_cast<std::int32_t>(token), total, counts_[token]});
      total += counts_[token];
      counts_[token] = plan_.merges.back().first;  // from now on: where the token's next partial goes
    }
    plan_.merged_partials.resize(static_cast<std::size_t>(total));
    for (const auto* items : lists) {
      for_partials(*items, [this](std::int32_t token, std::int32_t partial) {
        plan_.merged_partials[static_cast<std::size_t>(counts_[static_cast<std::size_t>(token)]++)] = partial;
      });
    }
  }

  // So that no long one is at work alone in the end.
  static void longest_first(std::vector<AttentionItem>& items) {
    std::stable_sort(items.begin(), items.end(), [](const AttentionItem& a, const AttentionItem& b) {
      return a.key_end - a.key_begin > b.key_end - b.key_begin;
    });
  }

  template <class Use>
  void for_partials(const std::vector<AttentionItem>& items, Use use) const {
    for (const AttentionItem& item : items) {
      for (std::int32_t i = 0; i < item.num_rows && item.first_partial >= 0; ++i) {
        use(plan_.rows[static_cast<std::size_t>(item.first_row + i)], item.first_partial + i);
      }
    }
  }

  std::int32_t position(std::int32_t token) const { return batch_.positions[static_cast<std::size_t>(token)]; }

  const StepBatch& batch_;
  const AttentionSetup& setup_;
  AttentionPlan& plan_;
  std::vector<Uncut> tiles_;
  std::vector<Uncut> decodes_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int32_t> counts_;  // [tokens]
};

}  // namespace

bool AttentionExtent::contains(const AttentionExtent& other) const {
  return tile_items >= other.tile_items && row_items >= other.row_items && rows >= other.rows &&
         merges >= other.merges && merged_partials >= other.merged_partials && partials >= other.partials;
}

AttentionExtent AttentionPlan::extent() const {
  const auto count = [](const auto& list) { return static_cast<std::int32_t>(list.size()); };
  return {count(tile_items), count(row_items), count(rows), count(merges), count(merged_partials), num_partials};
}

void plan_attention(const StepBatch& batch, const AttentionSetup& setup, AttentionPlan& plan) {
  Planner(batch, setup, plan).run();
}

namespace {

// chunk_tiles: at most so many tile items before any is cut, but for shared prefixes.
AttentionExtent bounds(const AttentionSetup& setup, std::int32_t num_tokens, std::int32_t num_sequences,
                       std::int32_t chunk_tiles) {
  const std::int32_t tile_tokens = setup.tile_tokens();
  const std::int32_t tile_machine = machine_items(setup, kTilesKernel);
  AttentionExtent most;
  most.merges = num_tokens;
  if (setup.deterministic) {
    most.rows = num_tokens;
    most.partials = kFoldWaves * tile_machine;
    most.tile_items = num_tokens / tile_tokens + num_sequences + most.partials;
  } else {
    const std::int32_t prefix_tiles = num_sequences / tile_tokens + num_sequences / kMinSharers;
    const std::int32_t cut_tiles = kTilesKernel.waves * tile_machine;
    most.rows = num_tokens + num_sequences;  // a token of a shared prefix is a row of two items
    most.row_items = std::max(num_sequences, kRowsKernel.waves * machine_items(setup, kRowsKernel));
    most.tile_items = std::max(chunk_tiles + prefix_tiles, cut_tiles);
    // Of tiles that are not cut only those of prefixes have partials.
    most.partials = most.row_items + std::max(num_sequences, cut_tiles * std::min(tile_tokens, num_tokens));
  }
  most.merged_partials = most.partials;
  return most;
}

}  // namespace

AttentionExtent attention_bounds(const AttentionSetup& setup, std::int32_t num_tokens, std::int32_t num_sequences) {
  return bounds(setup, num_tokens, num_sequences, num_tokens / setup.tile_tokens() + num_sequences);
}

AttentionExtent decode_bounds(const AttentionSetup& setup, std::int32_t num_sequences) {
  return bounds(setup, num_sequences, num_sequences, 0);
}

std::size_t attention_workspace_floats(const AttentionSetup& setup, const AttentionExtent& extent) {
  return static_cast<std::size_t>(extent.partials) * static_cast<std::size_t>(setup.num_heads) *
         static_cast<std::size_t>(setup.head_dim + 2);
}

AttentionPlanLayout::AttentionPlanLayout(const AttentionExtent& extent) {
  std::size_t used = kNumCounts;
  const auto take = [&used](std::int32_t count, std::size_t bytes) {
    const std::size_t begin = used;
    used += static_cast<std::size_t>(count) * (bytes / sizeof(std::int32_t));
    return begin;
  };
  tile_items = take(extent.tile_items, sizeof(AttentionItem));
  row_items = take(extent.row_items, sizeof(AttentionItem));
  merges = take(extent.merges, sizeof(AttentionMerge));
  merged_partials = take(extent.merged_partials, sizeof(std::int32_t));
  rows = take(extent.rows, sizeof(std::int32_t));
  size = used;
}

void flatten(const AttentionPlan& plan, const AttentionExtent& extent, std::span<std::int32_t> flat) {
  const AttentionPlanLayout layout(extent);
  const auto put = [flat](std::size_t at, const auto& list) {
    if (!list.empty()) std::memcpy(&flat[at], list.data(), list.size() * sizeof(list[0]));
  };
  const AttentionExtent counts = plan.extent();
  FOLIO_CHECK(extent.contains(counts), "a plan fits into its extent");
  put(layout.counts, std::array<std::int32_t, kNumCounts>{counts.tile_items, counts.row_items, counts.merges, 0});
  put(layout.tile_items, plan.tile_items);
  put(layout.row_items, plan.row_items);
  put(layout.merges, plan.merges);
  put(layout.merged_partials, plan.merged_partials);
  put(layout.rows, plan.rows);
}

}  // namespace folio::cuda
