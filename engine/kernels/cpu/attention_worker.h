// One worker's share of a layer's attention: pieces of the plan, taken one ahead of the one at work, so that the K and
// V of the next partition are asked for from memory while this one is computed. Blocks lie anywhere, so the CPU's own
// prefetchers see at most the rest of a block.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/attention_plan.h"
#include "engine/kernels/cpu/kernel_table.h"
#include "engine/kernels/kv_cache.h"

namespace folio::cpu {

// What the workers of a layer share.
struct AttentionJob {
  const StepBatch& batch;
  const AttentionShape& shape;
  const KvCache& cache;
  const KernelTable& kernels;
  AttentionPlan& plan;
  int layer;
  const float* q;  // [num_tokens][num_heads * head_dim]
  float* out;      // the same shape
  float* stored;   // results of partitions of tiles that are cut into pieces, [plan.num_stored * row_floats()]
  std::atomic<std::int32_t> next_piece{0};

  // A result is {maximum [rows], sum [rows], acc [rows][padded_dim]}.
  std::size_t row_floats() const { return static_cast<std::size_t>(cache.layout().padded_dim() + 2); }
};

// One per worker, memory reused.
class AttentionWorker {
 public:
  void run(AttentionJob& job);

 private:
  // One partition of a piece: its groups in the cache.
  struct Unit {
    AttentionPiece piece;
    std::int32_t partition = 0;  // counted from the tile's first
    int group_begin = 0, group_end = 0;
    const std::byte* groups[2 * kPartitionGroups] = {};  // K and V by turns
  };
  struct Partial {
    float *maximum, *sum, *acc;
  };

  bool take(Unit& unit);
  void find_groups(Unit& unit) const;
  FetchAhead ahead_of(const Unit& unit) const;
  void fetch(FetchAhead& ahead) const;
  void prepare_rows(const AttentionPiece& piece);
  void walk(const Unit& unit, FetchAhead& ahead);
  void merge(const Partial& from, const Partial& to);
  void merge_stored(const AttentionPiece& piece);
  void finish(const AttentionPiece& piece);
  Partial partial_at(float* at) const { return {at, at + num_rows_, at + 2 * num_rows_}; }
  Partial stored(const AttentionPiece& piece, std::int32_t partition) const;

  AttentionJob* job_ = nullptr;
  AttentionPiece taken_;  // the piece whose partitions `take` hands out
  std::int32_t next_partition_ = 0;
  int num_rows_ = 0;  // of the piece at work
  std::vector<std::byte> queries_;
  std::vector<std::int32_t> first_key_, end_key_;
  std::vector<float> part_, merged_;
};

}  // namespace folio::cpu
