#include "engine/kernels/cpu/attention_worker.h"

#include <algorithm>
#include <limits>

namespace folio::cpu {
namespace {

const QueryTile& tile_of(const AttentionJob& job, const AttentionPiece& piece) {
  return job.plan.tiles[static_cast<std::size_t>(piece.tile)];
}
bool is_whole(const AttentionJob& job, const AttentionPiece& piece) {
  return piece.end - piece.begin == tile_of(job, piece).num_partitions;
}

}  // namespace

void AttentionWorker::run(AttentionJob& job) {
  job_ = &job;
  taken_ = {};
  next_partition_ = 0;
  Unit units[2];
  int now = 0;
  if (!take(units[now])) return;
  FetchAhead start = ahead_of(units[now]);
  fetch(start);
  for (bool more = true; more; now ^= 1) {
    Unit& next = units[now ^ 1];
    more = take(next);
    FetchAhead ahead = ahead_of(more ? next : units[now]);
    if (!more) ahead.segment = ahead.end;
    walk(units[now], ahead);
    fetch(ahead);
  }
}

// The next partition for this worker: of its piece, or the first of another.
bool AttentionWorker::take(Unit& unit) {
  if (next_partition_ == taken_.end) {
    const std::int32_t piece = job_->next_piece.fetch_add(1, std::memory_order_relaxed);
    if (piece >= static_cast<std::int32_t>(job_->plan.pieces.size())) return false;
    taken_ = job_->plan.pieces[static_cast<std::size_t>(piece)];
    next_partition_ = taken_.begin;
  }
  unit.piece = taken_;
  unit.partition = next_partition_++;
  find_groups(unit);
  return true;
}

void AttentionWorker::find_groups(Unit& unit) const {
  const KvCacheLayout& layout = job_->cache.layout();
  const StepBatch& batch = job_->batch;
  const QueryTile& tile = tile_of(*job_, unit.piece);
  const std::int32_t first_token = batch.positions[static_cast<std::size_t>(tile.first_token)];
  const std::int32_t last = batch.positions[static_cast<std::size_t>(tile.first_token + tile.num_tokens - 1)];
  const std::int32_t start = (tile.first_partition + unit.partition) * kPartition;
  unit.group_begin = std::max(0, first_visible(first_token, job_->plan.window) - start) / kKeyGroup;
  unit.group_end = std::min(kPartitionGroups, (last + 1 - start + kKeyGroup - 1) / kKeyGroup);
  const BlockId* table = batch.block_ids.data() + batch.block_start[static_cast<std::size_t>(tile.sequence)];
  const auto groups = static_cast<std::int32_t>(layout.groups());
  const std::int32_t first = start / kKeyGroup + unit.group_begin;
  std::int32_t block = first / groups;
  std::int32_t in_block = first % groups;
  for (int g = unit.group_begin; g < unit.group_end; ++g) {
    const std::byte* head = job_->cache.data() + layout.head_offset(job_->layer, table[block], unit.piece.kv_head);
    unit.groups[2 * g] = head + layout.key_group_bytes() * static_cast<std::size_t>(in_block);
    unit.groups[2 * g + 1] = head + layout.key_group_bytes() * layout.groups() +
                             layout.value_group_bytes() * static_cast<std::size_t>(in_block);
    if (++in_block == groups) {
      in_block = 0;
      ++block;
    }
  }
}

FetchAhead AttentionWorker::ahead_of(const Unit& unit) const {
  const KvCacheLayout& layout = job_->cache.layout();
  const auto bytes = static_cast<int>(layout.value_scales_at());  // no fewer than of K
  return {unit.groups + 2 * unit.group_begin,
          unit.groups + 2 * unit.group_end,
          bytes,
          layout.scale_bytes() > 0 ? bytes : 0,
          0,
          unit.groups[2 * unit.group_begin]};
}

// All that is left, at once.
void AttentionWorker::fetch(FetchAhead& ahead) const {
  for (; ahead.segment != ahead.end; ++ahead.segment, ahead.offset = 0) {
    for (; ahead.offset < ahead.segment_bytes; ahead.offset += 64) {
      __builtin_prefetch(*ahead.segment + ahead.offset, 0, 2);
    }
    __builtin_prefetch(*ahead.segment + ahead.scales_at, 0, 2);
  }
}

void AttentionWorker::prepare_rows(const AttentionPiece& piece) {
  const QueryTile& tile = tile_of(*job_, piece);
  const AttentionShape& shape = job_->shape;
  const int group = shape.num_heads / shape.num_kv_heads;
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  num_rows_ = tile.num_tokens * group;
  queries_.resize(query_bytes(shape.head_dim) * static_cast<std::size_t>(num_rows_));
  first_key_.resize(static_cast<std::size_t>(num_rows_));
  end_key_.resize(static_cast<std::size_t>(num_rows_));
  part_.resize(job_->row_floats() * static_cast<std::size_t>(num_rows_));
  merged_.resize(part_.size());
  const PrepareQueryFn prepare = job_->kernels.prepare_query[static_cast<int>(job_->cache.layout().type)];
  std::size_t row = 0;
  for (std::int32_t t = tile.first_token; t < tile.first_token + tile.num_tokens; ++t) {
    const std::int32_t position = job_->batch.positions[static_cast<std::size_t>(t)];
    const float* q = job_->q + (static_cast<std::size_t>(t) * static_cast<std::size_t>(shape.num_heads) +
                                static_cast<std::size_t>(piece.kv_head * group)) *
                                   dim;
    for (int h = 0; h < group; ++h, ++row, q += dim) {
      prepare(q, shape.head_dim, queries_.data() + row * query_bytes(shape.head_dim));
      first_key_[row] = first_visible(position, job_->plan.window);
      end_key_[row] = position + 1;
    }
  }
}

// One partition; the piece's result when it is the last.
void AttentionWorker::walk(const Unit& unit, FetchAhead& ahead) {
  const AttentionPiece& piece = unit.piece;
  const bool whole = is_whole(*job_, piece);
  if (unit.partition == piece.begin) prepare_rows(piece);
  const KvCacheLayout& layout = job_->cache.layout();
  const bool first = unit.partition == 0;
  const Partial to = !whole ? stored(piece, unit.partition) : partial_at(first ? merged_.data() : part_.data());
  PartitionArgs args{};
  args.num_rows = num_rows_;
  args.head_dim = layout.head_dim;
  args.padded_dim = layout.padded_dim();
  args.queries = queries_.data();
  args.first_key = first_key_.data();
  args.end_key = end_key_.data();
  args.partition_start = (tile_of(*job_, piece).first_partition + unit.partition) * kPartition;
  args.group_begin = unit.group_begin;
  args.group_end = unit.group_end;
  args.groups = unit.groups;
  args.key_scales_at = layout.key_scales_at();
  args.value_scales_at = layout.value_scales_at();
  args.ahead = &ahead;
  args.maximum = to.maximum;
  args.sum = to.sum;
  args.acc = to.acc;
  job_->kernels.attend[static_cast<int>(layout.type)](args);

  if (whole && !first) merge(to, partial_at(merged_.data()));
  if (unit.partition + 1 < piece.end) return;
  if (whole) {
    finish(piece);
    return;
  }
  const std::size_t counter =
      static_cast<std::size_t>(piece.tile) * static_cast<std::size_t>(job_->shape.num_kv_heads) +
      static_cast<std::size_t>(piece.kv_head);
  std::atomic_ref<std::int32_t> missing(job_->plan.missing[counter]);
  const std::int32_t done = piece.end - piece.begin;
  if (missing.fetch_sub(done, std::memory_order_acq_rel) != done) return;
  missing.store(tile_of(*job_, piece).num_partitions, std::memory_order_relaxed);
  merge_stored(piece);
  finish(piece);
}

AttentionWorker::Partial AttentionWorker::stored(const AttentionPiece& piece, std::int32_t partition) const {
  const QueryTile& tile = tile_of(*job_, piece);
  const auto before = static_cast<std::size_t>(piece.kv_head * tile.num_partitions + partition);
  const auto row = static_cast<std::size_t>(tile.first_stored) + before * static_cast<std::size_t>(num_rows_);
  return partial_at(job_->stored + row * job_->row_floats());
}

void AttentionWorker::merge(const Partial& from, const Partial& to) {
  job_->kernels.merge(num_rows_, job_->cache.layout().padded_dim(), from.maximum, from.sum, from.acc, to.maximum,
                      to.sum, to.acc);
}

void AttentionWorker::merge_stored(const AttentionPiece& piece) {
  const Partial merged = partial_at(merged_.data());
  std::fill_n(merged.maximum, num_rows_, -std::numeric_limits<float>::infinity());
  std::fill_n(merged.sum, num_rows_, 0.0F);  // stays, of a row whose scores are no numbers
  for (std::int32_t p = 0; p < tile_of(*job_, piece).num_partitions; ++p) merge(stored(piece, p), merged);
}

void AttentionWorker::finish(const AttentionPiece& piece) {
  const AttentionShape& shape = job_->shape;
  const int group = shape.num_heads / shape.num_kv_heads;
  const auto dim = static_cast<std::size_t>(job_->cache.layout().padded_dim());
  const Partial merged = partial_at(merged_.data());
  for (int r = 0; r < num_rows_; ++r) {
    const auto token = static_cast<std::size_t>(tile_of(*job_, piece).first_token + r / group);
    const auto head = static_cast<std::size_t>(piece.kv_head * group + r % group);
    float* to = job_->out +
                (token * static_cast<std::size_t>(shape.num_heads) + head) * static_cast<std::size_t>(shape.head_dim);
    job_->kernels.finish(merged.acc + static_cast<std::size_t>(r) * dim, merged.sum[r], shape.head_dim, to);
  }
}

}  // namespace folio::cpu
