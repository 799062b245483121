#include "engine/kernels/cpu/attention_plan.h"

#include <algorithm>
#include <limits>

namespace folio::cpu {
namespace {

constexpr int kTileRows = 48;         // query rows that share a partition's K and V while it is in the cache
constexpr int kPiecesPerThread = 16;  // enough that a core which others use too takes fewer
constexpr std::int64_t kStoredPerThread = 1 << 15;  // row results at most: 17 MB at 128 dims

void cut_tiles(const StepBatch& batch, const AttentionShape& shape, AttentionPlan& plan) {
  const int group = shape.num_heads / shape.num_kv_heads;
  const int tile_tokens = std::max(1, kTileRows / group);
  for (std::int32_t s = 0; s < batch.num_sequences(); ++s) {
    const auto begin = batch.query_start[static_cast<std::size_t>(s)];
    const auto end = batch.query_start[static_cast<std::size_t>(s) + 1];
    for (std::int32_t token = begin; token < end; token += tile_tokens) {
      QueryTile tile;
      tile.sequence = s;
      tile.first_token = token;
      tile.num_tokens = std::min(tile_tokens, end - token);
      const std::int32_t first = batch.positions[static_cast<std::size_t>(token)];
      const std::int32_t last = batch.positions[static_cast<std::size_t>(token + tile.num_tokens - 1)];
      tile.first_partition = first_visible(first, plan.window) / kPartition;
      tile.num_partitions = last / kPartition + 1 - tile.first_partition;
      tile.first_item = plan.num_partitions;
      plan.num_partitions += tile.num_partitions;
      plan.tiles.push_back(tile);
    }
  }
}

}  // namespace

void plan_attention(const StepBatch& batch, const AttentionShape& shape, std::int32_t window, int num_threads,
                    AttentionPlan& plan) {
  plan.window = window;
  plan.tiles.clear();
  plan.pieces.clear();
  plan.missing.clear();
  plan.num_partitions = 0;
  plan.num_stored = 0;
  cut_tiles(batch, shape, plan);
  const int most = num_threads == 1 ? std::numeric_limits<int>::max()
                                    : std::max(1, plan.num_partitions * shape.num_kv_heads /
                                                      (kPiecesPerThread * num_threads));  // partitions of a piece
  // What a cut tile stores grows with its rows and its context; those that are taken last are cut as long as there is
  // room, as a piece that is long counts there.
  const auto runs_of = [most](const QueryTile& tile) { return (tile.num_partitions - 1) / most + 1; };
  for (QueryTile& tile : plan.tiles) {
    const std::int64_t rows = std::int64_t{tile.num_tokens} * shape.num_heads * tile.num_partitions;
    tile.is_cut = runs_of(tile) > 1 && plan.num_stored + rows <= kStoredPerThread * num_threads;
    tile.first_stored = plan.num_stored;
    if (tile.is_cut) plan.num_stored += rows;
  }
  // The last tiles of a chunk see most keys: first, so that no long piece is at work alone in the end.
  plan.missing.resize(plan.tiles.size() * static_cast<std::size_t>(shape.num_kv_heads));
  for (std::size_t t = plan.tiles.size(); t-- > 0;) {
    const QueryTile& tile = plan.tiles[t];
    const std::int32_t partitions = tile.num_partitions;
    const std::int32_t runs = tile.is_cut ? runs_of(tile) : 1;
    for (std::int32_t r = 0; r < runs; ++r) {
      for (std::int32_t head = 0; head < shape.num_kv_heads; ++head) {  // side by side in a block
        plan.pieces.push_back({static_cast<std::int32_t>(t), head, partitions * r / runs, partitions * (r + 1) / runs});
      }
    }
    std::fill_n(plan.missing.begin() + static_cast<std::ptrdiff_t>(t) * shape.num_kv_heads, shape.num_kv_heads,
                partitions);
  }
}

}  // namespace folio::cpu
