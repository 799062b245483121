#include "engine/kernels/cpu/attention_plan.h"

#include <algorithm>
#include <limits>

namespace folio::cpu {
namespace {

constexpr int kTileRows = 48;  // query rows that share a partition's K and V while it is in the cache

}  // namespace

void plan_attention(const StepBatch& batch, const AttentionShape& shape, std::int32_t window, int num_threads,
                    AttentionPlan& plan) {
  const int group = shape.num_heads / shape.num_kv_heads;
  const int tile_tokens = std::max(1, kTileRows / group);
  plan.window = window;
  plan.tiles.clear();
  plan.num_partitions = 0;
  plan.max_rows = 0;
  int most_partitions = 0;
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
      tile.first_partition = first_visible(first, window) / kPartition;
      tile.num_partitions = last / kPartition + 1 - tile.first_partition;
      tile.first_item = plan.num_partitions;
      plan.num_partitions += tile.num_partitions;
      most_partitions = std::max(most_partitions, tile.num_partitions);
      plan.max_rows = std::max(plan.max_rows, tile.num_tokens * group);
      plan.tiles.push_back(tile);
    }
  }
  const auto items = static_cast<std::int64_t>(plan.tiles.size()) * shape.num_kv_heads;
  plan.split = num_threads > 1 && most_partitions > 1 && items < 4 * static_cast<std::int64_t>(num_threads);
}

void TileRunner::begin(const StepBatch& batch, const AttentionShape& shape, const KvCache& cache,
                       const KernelTable& kernels, int layer, std::int32_t window, const QueryTile& tile, int kv_head,
                       const float* q) {
  batch_ = &batch;
  shape_ = &shape;
  cache_ = &cache;
  kernels_ = &kernels;
  tile_ = tile;
  layer_ = layer;
  kv_head_ = kv_head;
  const int group = shape.num_heads / shape.num_kv_heads;
  queries_.clear();
  first_key_.clear();
  end_key_.clear();
  for (std::int32_t t = tile.first_token; t < tile.first_token + tile.num_tokens; ++t) {
    const std::int32_t position = batch.positions[static_cast<std::size_t>(t)];
    for (int h = 0; h < group; ++h) {
      const auto head = static_cast<std::size_t>(t) * static_cast<std::size_t>(shape.num_heads) +
                        static_cast<std::size_t>(kv_head * group + h);
      queries_.push_back(q + head * static_cast<std::size_t>(shape.head_dim));
      first_key_.push_back(first_visible(position, window));
      end_key_.push_back(position + 1);
    }
  }
  const std::size_t floats = partial_floats(num_rows(), cache.layout().padded_dim());
  part_.resize(floats);
  merged_.resize(floats);
}

void TileRunner::run_partition(int partition, float* maximum, float* sum, float* acc) {
  const KvCacheLayout& layout = cache_->layout();
  PartitionArgs args{};
  args.num_rows = num_rows();
  args.head_dim = layout.head_dim;
  args.padded_dim = layout.padded_dim();
  args.queries = queries_.data();
  args.first_key = first_key_.data();
  args.end_key = end_key_.data();
  args.partition_start = (tile_.first_partition + partition) * kPartition;
  args.group_begin = std::max(0, first_key_.front() - args.partition_start) / kKeyGroup;
  args.group_end = std::min(kPartitionGroups, (end_key_.back() - args.partition_start + kKeyGroup - 1) / kKeyGroup);
  args.maximum = maximum;
  args.sum = sum;
  args.acc = acc;
  const std::byte* keys[kPartitionGroups] = {};
  const std::byte* values[kPartitionGroups] = {};
  const BlockId* table = batch_->block_ids.data() + batch_->block_start[static_cast<std::size_t>(tile_.sequence)];
  for (int g = args.group_begin; g < args.group_end; ++g) {
    const std::int32_t position = args.partition_start + g * kKeyGroup;
    const BlockId block = table[position / layout.block_size];
    const int in_block = position % layout.block_size / kKeyGroup;
    keys[g] = cache_->data() + layout.key_group_offset(layer_, block, kv_head_, in_block);
    values[g] = cache_->data() + layout.value_group_offset(layer_, block, kv_head_, in_block);
  }
  args.keys = keys;
  args.values = values;
  args.key_scales_at = layout.key_scales_at();
  args.value_scales_at = layout.value_scales_at();
  kernels_->attend[static_cast<int>(layout.type)](args);
}

void TileRunner::run_all(float* out) {
  const int rows = num_rows();
  const int dim = cache_->layout().padded_dim();
  float* m = merged_.data();
  run_partition(0, m, m + rows, m + 2 * rows);
  for (int p = 1; p < tile_.num_partitions; ++p) {
    float* part = part_.data();
    run_partition(p, part, part + rows, part + 2 * rows);
    kernels_->merge(rows, dim, part, part + rows, part + 2 * rows, m, m + rows, m + 2 * rows);
  }
  finish(out);
}

void TileRunner::merge_stored(const float* stored, std::size_t stride, float* out) {
  const int rows = num_rows();
  const int dim = cache_->layout().padded_dim();
  float* m = merged_.data();
  std::fill(m, m + rows, -std::numeric_limits<float>::infinity());
  for (int p = 0; p < tile_.num_partitions; ++p) {
    const float* part = stored + static_cast<std::size_t>(p) * stride;
    kernels_->merge(rows, dim, part, part + rows, part + 2 * rows, m, m + rows, m + 2 * rows);
  }
  finish(out);
}

void TileRunner::finish(float* out) {
  const int rows = num_rows();
  const int dim = cache_->layout().padded_dim();
  const int group = shape_->num_heads / shape_->num_kv_heads;
  const float* sum = merged_.data() + rows;
  const float* acc = merged_.data() + 2 * rows;
  for (int r = 0; r < rows; ++r) {
    const auto token = static_cast<std::size_t>(tile_.first_token + r / group);
    const auto head = static_cast<std::size_t>(kv_head_ * group + r % group);
    float* to =
        out + (token * static_cast<std::size_t>(shape_->num_heads) + head) * static_cast<std::size_t>(shape_->head_dim);
    kernels_->finish(acc + static_cast<std::size_t>(r) * static_cast<std::size_t>(dim), sum[r], shape_->head_dim, to);
  }
}

}  // namespace folio::cpu
