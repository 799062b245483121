// Drives rope_write_kv and attend of one layer through StepBatches, as the engine would, for any sequences and chunks.
#pragma once
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "engine/kernels/cpu/cpu_backend.h"

namespace folio::cpu {

struct Shape {
  AttentionShape attention;
  KvType type;
  int block_size;
  int window;
};

// One sequence's activations, fixed; a test feeds them in any chunks.
struct Sequence {
  std::vector<float> q, k, v;  // [length][heads][dim]
  int length = 0;
};
Sequence make_sequence(const Shape& shape, int length, std::mt19937& random);

class AttentionRunner {
 public:
  // The cache starts full of a large finite poison; block numbers are shuffled by the seed.
  AttentionRunner(const Shape& shape, const std::string& isa, int threads, int num_blocks, std::uint32_t seed);

  // Feeds all sequences side by side, `chunk` tokens of each a step; returns each one's output rows.
  std::vector<std::vector<float>> run(const std::vector<Sequence>& sequences, int chunk);

  // From now on a table names this block wherever a block lies before the window of all of a step's tokens.
  void forget_before_window(BlockId instead) { instead_ = instead; }

  KvCache& cache() { return backend_.cache(); }
  CpuBackend& backend() { return backend_; }
  const std::vector<std::vector<BlockId>>& tables() const { return tables_; }  // of the last run's sequences

 private:
  void append(StepBatch& batch, std::vector<BlockId>& table, int first, int count);
  void run_step(const StepBatch& batch, std::vector<float>& q, std::vector<float>& k, const std::vector<float>& v,
                std::vector<float>& out);

  Shape shape_;
  CpuBackend backend_;
  std::vector<BlockId> free_;
  std::vector<std::vector<BlockId>> tables_;
  BlockId instead_ = -1;  // -1: tables keep their blocks
};

}  // namespace folio::cpu
