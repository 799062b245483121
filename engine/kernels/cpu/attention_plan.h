// How a step's attention is cut into work: tiles of query tokens of one sequence, made once a step for each window that
// the layers have. A tile walks the partitions that hold keys its tokens see, and of these only the 16-token groups
// that they see: what lies before a window costs nothing and is not read. A tile never changes a result (see
// attention_kernels.h): the cut is only about cores and caches.
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
};

// The first key that a token sees; window 0: all.
inline std::int32_t first_visible(std::int32_t position, std::int32_t window) {
  return window > 0 && position >= window ? position - window + 1 : 0;
}

struct AttentionPlan {
  std::int32_t window = 0;
  std::vector<QueryTile> tiles;
  bool split = false;               // partitions of a tile go to different workers and merge afterwards
  std::int32_t num_partitions = 0;  // of all tiles
  std::int32_t max_rows = 0;        // query rows of the largest tile: tokens * heads of a group
};

void plan_attention(const StepBatch& batch, const AttentionShape& shape, std::int32_t window, int num_threads,
                    AttentionPlan& plan);

// One tile's share of one kv head: prepared pointers, then one kernel call a partition. One per worker, memory reused.
class TileRunner {
 public:
  void begin(const StepBatch& batch, const AttentionShape& shape, const KvCache& cache, const KernelTable& kernels,
             int layer, std::int32_t window, const QueryTile& tile, int kv_head, const float* q);
  int num_rows() const { return static_cast<int>(queries_.size()); }
  // `partition` counts from the tile's first. Results [num_rows] and [num_rows][padded_dim].
  void run_partition(int partition, float* maximum, float* sum, float* acc);
  // All partitions in order, merged, finished into out[token][heads * head_dim].
  void run_all(float* out);
  // The same from stored partials, as `run_partition` left them: partition p at + p * stride.
  void merge_stored(const float* stored, std::size_t stride, float* out);

 private:
  void finish(float* out);

  const StepBatch* batch_ = nullptr;
  const AttentionShape* shape_ = nullptr;
  const KvCache* cache_ = nullptr;
  const KernelTable* kernels_ = nullptr;
  QueryTile tile_;
  int layer_ = 0;
  int kv_head_ = 0;
  std::vector<const float*> queries_;
  std::vector<std::int32_t> first_key_, end_key_;
  std::vector<float> part_, merged_;  // {maximum [rows], sum [rows], acc [rows][padded_dim]}
};

// Floats of one stored partial of `rows` rows.
inline std::size_t partial_floats(int rows, int padded_dim) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(padded_dim + 2);
}

}  // namespace folio::cpu
