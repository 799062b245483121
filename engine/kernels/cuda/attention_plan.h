// How a step's attention is cut into the work of CTAs, on the host, without a float or a device: once a step for each
// window that the layers have.
//
// The work is items. An item is some query tokens and a range of keys that they look at; with each KV head it is one
// CTA's. That is all there is of decode, chunks of prompts and shared prefixes:
//   - a chunk gives items of up to attention_tile_rows / group neighbouring tokens, with the keys from the first that
//     the first token sees to the last token's own;
//   - a decode gives an item of one token with all keys that it sees;
//   - sequences of one token whose tables begin with the same blocks give items of many sequences' tokens with the keys
//     of those blocks (a cascade: they are read once), and an item each with the rest.
// An item whose keys are too many for its share of the machine is cut along them. An item that sees all keys of its
// tokens writes the output; otherwise each of its tokens has a partial, and a merge for each token puts its partials
// together in the order of keys.
//
// Layers with a window have no cascade. Deterministic: no cascade, everything is a tile item, and keys are reduced in
// runs of kFoldKeys counted from position 0: one run for each partial, or in turn by the CTA of an item that writes the
// output. Both add up the runs by the same operations in the same order, so a token's result is a function of its own
// query and keys.
//
// Worked example: 4 query heads on 2 KV heads (group 2), head size 64 (128 rows a tile), 2 SMs, a decode of 1000 keys
// (token 0; its blocks are 0 .. 62 of the block_ids) and a chunk of 100 tokens on top of 300 (tokens 1 .. 100):
//   rows             [0, 1, 2 .. 100]
//   tile_items       {first_row 65, 36 rows, block 63, keys 0 .. 400, -1}, {1, 64 rows, block 63, keys 0 .. 364, -1}
//   row_items        {0, 1 row, block 0, keys 0 .. 384, partial 0}, {.. 384 .. 768, 1}, {.. 768 .. 1000, 2}
//   merges           {token 0, first 0, count 3}
//   merged_partials  [0, 1, 2]
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/kernels/step_batch.h"

namespace folio::cuda {

// Rows of a tile item, (token, query head of the group): 16 for each warp of the CTA.
constexpr std::int32_t attention_tile_rows(std::int32_t head_dim) {
  return head_dim > 128 ? 64 : 128;
}

// Keys that are reduced alone in deterministic mode: as on the CPU.
inline constexpr std::int32_t kFoldKeys = 256;

struct AttentionItem {
  std::int32_t first_row = 0;  // into rows: its query tokens
  std::int32_t num_rows = 0;
  std::int32_t first_block = 0;  // into the step's block_ids: that of position 0
  std::int32_t key_begin = 0;    // positions; never empty
  std::int32_t key_end = 0;
  std::int32_t first_partial = -1;  // of its first token, the others' follow; -1: it writes the output
};

struct AttentionMerge {
  std::int32_t token = 0;
  std::int32_t first = 0;  // into merged_partials
  std::int32_t count = 0;
};

// What plans are made for.
struct AttentionSetup {
  std::int32_t num_heads = 0;
  std::int32_t num_kv_heads = 0;  // num_heads / num_kv_heads, the group, is 1 to 16
  std::int32_t head_dim = 0;
  std::int32_t block_size = 16;  // a multiple of 16
  std::int32_t window = 0;       // 0: none
  std::int32_t num_sms = 1;      // of the device
  bool deterministic = false;

  std::int32_t group() const { return num_heads / num_kv_heads; }
  std::int32_t tile_tokens() const { return attention_tile_rows(head_dim) / group(); }
};

// How much of everything a plan has, or at most: a captured graph has fixed grids, and CTAs past what is there leave.
struct AttentionExtent {
  std::int32_t tile_items = 0;
  std::int32_t row_items = 0;
  std::int32_t rows = 0;
  std::int32_t merges = 0;
  std::int32_t merged_partials = 0;
  std::int32_t partials = 0;

  bool contains(const AttentionExtent& other) const;
};

struct AttentionPlan {
  std::vector<AttentionItem> tile_items;  // those with most keys first
  std::vector<AttentionItem> row_items;   // one token each
  std::vector<std::int32_t> rows;         // tokens of the step
  std::vector<AttentionMerge> merges;
  std::vector<std::int32_t> merged_partials;  // a merge's are in the order of keys
  std::int32_t num_partials = 0;
  std::int32_t fold_keys = 0;  // kFoldKeys if deterministic

  AttentionExtent extent() const;
};

// Of `batch`: query_start, positions, context_len, block_start and block_ids. The plan's memory is used again.
void plan_attention(const StepBatch& batch, const AttentionSetup& setup, AttentionPlan& plan);

// Contains the extent of any plan for at most so many tokens of so many sequences.
AttentionExtent attention_bounds(const AttentionSetup& setup, std::int32_t num_tokens, std::int32_t num_sequences);
// If every sequence has one token: what a captured graph of a padded batch is made for.
AttentionExtent decode_bounds(const AttentionSetup& setup, std::int32_t num_sequences);

// Floats of the workspace: partials [num_heads][head_dim] and their states [num_heads][2] (attention_work.h).
std::size_t attention_workspace_floats(const AttentionSetup& setup, const AttentionExtent& extent);

// A plan as one array of int32, so that one copy uploads it; where things lie depends on the extent alone.
enum : std::int32_t { kCountTileItems, kCountRowItems, kCountMerges, kNumCounts = 4 };
struct AttentionPlanLayout {
  explicit AttentionPlanLayout(const AttentionExtent& extent);
  std::size_t counts = 0;
  std::size_t tile_items;
  std::size_t row_items;
  std::size_t merges;
  std::size_t merged_partials;
  std::size_t rows;
  std::size_t size;
};
// flat: [AttentionPlanLayout(extent).size]. The extent contains the plan's.
void flatten(const AttentionPlan& plan, const AttentionExtent& extent, std::span<std::int32_t> flat);

}  // namespace folio::cuda
