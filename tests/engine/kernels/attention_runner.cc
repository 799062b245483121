#include "tests/engine/kernels/attention_runner.h"

#include <algorithm>
#include <numeric>

namespace folio::cpu {

Sequence make_sequence(const Shape& shape, int length, std::mt19937& random) {
  std::normal_distribution<float> normal;
  const auto values = [&](int heads) {
    std::vector<float> x(static_cast<std::size_t>(length * heads * shape.attention.head_dim));
    for (float& value : x) value = normal(random);
    return x;
  };
  return {values(shape.attention.num_heads), values(shape.attention.num_kv_heads), values(shape.attention.num_kv_heads),
          length};
}

AttentionRunner::AttentionRunner(const Shape& shape, const std::string& isa, int threads, int num_blocks,
                                 std::uint32_t seed)
    : shape_(shape),
      backend_(isa, threads, shape.attention,
               {1, shape.attention.num_kv_heads, shape.attention.head_dim, shape.block_size, num_blocks, shape.type}) {
  cache().fill(30000.0F);
  free_.resize(static_cast<std::size_t>(num_blocks));
  std::iota(free_.begin(), free_.end(), 1);
  std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
}

std::vector<std::vector<float>> AttentionRunner::run(const std::vector<Sequence>& sequences, int chunk) {
  const AttentionShape& a = shape_.attention;
  const auto q_row = static_cast<std::size_t>(a.num_heads * a.head_dim);
  const auto kv_row = static_cast<std::size_t>(a.num_kv_heads * a.head_dim);
  std::vector<std::vector<float>> outputs(sequences.size());
  std::vector<int> done(sequences.size(), 0);
  tables_.assign(sequences.size(), {});
  for (;;) {
    StepBatch batch;
    batch.clear();
    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    std::vector<std::size_t> owners;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const int count = std::min(chunk, sequences[s].length - done[s]);
      if (count == 0) continue;
      owners.push_back(s);
      append(batch, tables_[s], done[s], count);
      const auto take = [&](const std::vector<float>& from, std::size_t row, std::vector<float>& to) {
        const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(done[s]));
        to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(count)));
      };
      take(sequences[s].q, q_row, q);
      take(sequences[s].k, kv_row, k);
      take(sequences[s].v, kv_row, v);
      done[s] += count;
    }
    if (owners.empty()) break;
    std::vector<float> out(q.size(), NAN);
    run_step(batch, q, k, v, out);
    for (std::size_t i = 0; i < owners.size(); ++i) {
      const auto begin = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(batch.query_start[i]) * q_row);
      const auto end = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(batch.query_start[i + 1]) * q_row);
      auto& to = outputs[owners[i]];
      to.insert(to.end(), out.begin() + begin, out.begin() + end);
    }
  }
  for (const auto& table : tables_) free_.insert(free_.end(), table.begin(), table.end());
  return outputs;
}

void AttentionRunner::run_step(const StepBatch& batch, std::vector<float>& q, std::vector<float>& k,
                               const std::vector<float>& v, std::vector<float>& out) {
  const int dim = shape_.attention.head_dim;
  const std::vector<float> still(static_cast<std::size_t>(dim / 2), 0.0F);  // no rotation
  const Rope rope{dim / 2 * 2, false, still.data()};
  backend_.begin_step(batch, {&rope, 1});
  backend_.rope_write_kv(0, 0, {}, {}, 1.0F / std::sqrt(static_cast<float>(dim)), q.data(), k.data(), v.data());
  backend_.attend(0, shape_.window, q.data(), out.data());
}

void AttentionRunner::append(StepBatch& batch, std::vector<BlockId>& table, int first, int count) {
  while (static_cast<int>(table.size()) * shape_.block_size < first + count) {
    table.push_back(free_.back());
    free_.pop_back();
  }
  for (int p = first; p < first + count; ++p) {
    batch.tokens.push_back(0);
    batch.positions.push_back(p);
    batch.slots.push_back(table[static_cast<std::size_t>(p / shape_.block_size)] * shape_.block_size +
                          p % shape_.block_size);
  }
  batch.query_start.push_back(batch.num_tokens());
  batch.context_len.push_back(first + count);
  const int unseen = instead_ >= 0 ? std::max(0, first - shape_.window + 1) / shape_.block_size : 0;
  for (int i = 0; i < static_cast<int>(table.size()); ++i) {
    batch.block_ids.push_back(i < unseen ? instead_ : table[static_cast<std::size_t>(i)]);
  }
  batch.block_start.push_back(static_cast<std::int32_t>(batch.block_ids.size()));
}

}  // namespace folio::cpu
