// How a step's attention is cut into work: tiles of query tokens of one sequence, made once a step for each window that
// the layers have. A tile walks the partitions that hold keys its tokens see, and of these only the 16-token groups
// that they see: what lies before a window costs nothing and is not read. Pieces, runs of one tile's partitions for one
// kv head, are what workers take. Neither ever changes a result (see attention_kernels.h): the cut is only about cores
// and caches.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/kernel_table.h"

namespace folio::cpu {

struct QueryTile {
  std::int32_t sequence = 0;
  std::int32_t first_token = 0;  // row of the step
  std::int32_t num_tokens = 0;
  std::int32_t first_partition = 0;  // of the sequence: of the first token's first visible key
  std::int32_t num_partitions = 0;   // from there to the last token's own
  std::int32_t first_item = 0;       // partitions of the plan's tiles before this one
  bool is_cut = false;               // into several pieces for each kv head
  std::int64_t first_stored = 0;     // if so: where its row results begin among the plan's num_stored
};

// The first key that a token sees; window 0: all.
inline std::int32_t first_visible(std::int32_t position, std::int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

struct AttentionPiece {
  std::int32_t tile = 0;
  std::int32_t kv_head = 0;
  std::int32_t begin = 0, end = 0;  // partitions, counted from the tile's first
};

struct AttentionPlan {
  std::int32_t window = 0;
  std::vector<QueryTile> tiles;
  std::vector<AttentionPiece> pieces;
  // [tile][kv head]: partitions whose results are not stored yet, of a tile that is cut into several pieces. Counted
  // down by the workers; who brings it to 0 merges and sets it back for the next layer.
  std::vector<std::int32_t> missing;
  std::int32_t num_partitions = 0;  // of all tiles
  std::int64_t num_stored = 0;      // row results of the tiles that are cut: rows * partitions * kv heads
};

void plan_attention(const StepBatch& batch, const AttentionShape& shape, std::int32_t window, int num_threads,
                    AttentionPlan& plan);

}  // namespace folio::cpu
