// One step's attention on the device, a simulated or (tests/gpu) a real one, and in double on the host: sequences of
// made-up activations, a cache that holds their K and V in shuffled blocks and NaN everywhere else, and tables with -1
// where nothing may be read.
#pragma once
#include <cstdint>
#include <vector>

#include "engine/kernels/cuda/attention.h"
#include "engine/kernels/step_batch.h"

namespace folio::cuda {

struct AttentionShape {
  KvElement element = KvElement::kF16;
  std::int32_t head_dim = 64;
  std::int32_t stored_dim = 0;  // in the cache; 0: head_dim
  std::int32_t num_kv_heads = 1;
  std::int32_t group = 1;
  std::int32_t block_size = 16;
  std::int32_t window = 0;
  std::int32_t num_sms = 4;
  bool deterministic = false;

  AttentionSetup setup() const;
};

// Some last tokens of a sequence. Sequences with the same content have the same activations up to any length; with
// `shared_keys` the first blocks, of so many keys, are the very same in all sequences of that content.
struct Sequence {
  std::int32_t context = 1;
  std::int32_t count = 1;
  std::uint32_t content = 0;
  std::int32_t shared_keys = 0;
};

class AttentionCase {
 public:
  AttentionCase(const AttentionShape& shape, const std::vector<Sequence>& sequences);

  // [token][head][dim]. Padded: buffers and grids of decode_bounds for so many sequences more.
  std::vector<float> run(std::int32_t padding = 0) const;
  // The same in double. is_rounded: queries, and elements times a scale, as the tensor cores get them.
  std::vector<float> reference(bool is_rounded) const;

  const AttentionPlan& plan() const { return plan_; }
  std::size_t floats_of_token() const { return num_heads_ * static_cast<std::size_t>(shape_.head_dim); }

 private:
  void add_sequence(const Sequence& sequence);
  void fill_block(const Sequence& sequence, BlockId block, std::int32_t first_key, std::int32_t from, std::int32_t to);
  void store_row(char* row, char* scale, std::vector<float> values);
  std::vector<double> load_row(const char* row, const char* scale, bool is_rounded) const;
  void attend_token(std::size_t sequence, std::size_t token, bool is_rounded, std::vector<float>& out) const;

  AttentionShape shape_;
  KvLayout layout_;
  std::size_t num_heads_;
  StepBatch batch_;
  std::vector<char> cache_;
  std::vector<float> q_;  // [token][head][dim]
  std::vector<BlockId> free_blocks_;
  std::vector<std::vector<BlockId>> shared_blocks_;  // [content]
  AttentionPlan plan_;
};

}  // namespace folio::cuda
