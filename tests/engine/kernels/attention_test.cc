// Paged attention through the backend, against a double reference over the cached values, and bit for bit against
// itself under other chunks, thread counts and block numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "engine/kernels/cpu/cpu_backend.h"
#include "tests/engine/kernels/levels.h"

namespace folio::cpu {
namespace {

struct Shape {
  AttentionShape attention;
  KvType type;
  int block_size;
  int window;
};

// One sequence's activations, fixed; the test feeds them in any chunks.
struct Sequence {
  std::vector<float> q, k, v;  // [length][heads][dim]
  int length = 0;
};

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

class Runner {
 public:
  Runner(const Shape& shape, const std::string& isa, int threads, int num_blocks, std::uint32_t seed)
      : shape_(shape),
        pool_(threads),
        cache_(layout(shape, num_blocks), pool_),
        backend_(isa, pool_, shape.attention, cache_) {
    cache_.fill(30000.0F);  // poison: large and finite
    free_.resize(static_cast<std::size_t>(num_blocks));
    std::iota(free_.begin(), free_.end(), 1);
    std::shuffle(free_.begin(), free_.end(), std::mt19937(seed));
  }

  // Feeds all sequences side by side, `chunk` tokens of each a step; returns each one's output rows.
  std::vector<std::vector<float>> run(const std::vector<Sequence>& sequences, int chunk) {
    const AttentionShape& a = shape_.attention;
    const auto q_row = static_cast<std::size_t>(a.num_heads * a.head_dim);
    const auto kv_row = static_cast<std::size_t>(a.num_kv_heads * a.head_dim);
    std::vector<std::vector<float>> outputs(sequences.size());
    std::vector<std::vector<BlockId>> tables(sequences.size());
    std::vector<int> done(sequences.size(), 0);
    for (bool more = true; more;) {
      more = false;
      StepBatch batch;
      batch.clear();
      std::vector<float> q;
      std::vector<float> k;
      std::vector<float> v;
      std::vector<std::size_t> owners;
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        const int count = std::min(chunk, sequences[s].length - done[s]);
        if (count == 0) continue;
        more = true;
        owners.push_back(s);
        append(batch, tables[s], done[s], count);
        const auto take = [&](const std::vector<float>& from, std::size_t row, std::vector<float>& to) {
          const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(done[s]));
          to.insert(to.end(), begin, begin + static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(count)));
        };
        take(sequences[s].q, q_row, q);
        take(sequences[s].k, kv_row, k);
        take(sequences[s].v, kv_row, v);
        done[s] += count;
      }
      if (!more) break;
      const std::vector<float> still(static_cast<std::size_t>(a.head_dim / 2), 0.0F);  // no rotation
      const Rope rope{a.head_dim / 2 * 2, false, still};
      backend_.begin_step(batch, {&rope, 1});
      backend_.rope_write_kv(0, 0, {}, {}, 1.0F / std::sqrt(static_cast<float>(a.head_dim)), q.data(), k.data(),
                             v.data());
      std::vector<float> out(q.size(), NAN);
      backend_.attend(0, shape_.window, q.data(), out.data());
      for (std::size_t i = 0; i < owners.size(); ++i) {
        const auto begin = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(batch.query_start[i]) * q_row);
        const auto end = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(batch.query_start[i + 1]) * q_row);
        auto& to = outputs[owners[i]];
        to.insert(to.end(), out.begin() + begin, out.begin() + end);
      }
    }
    for (const auto& table : tables) free_.insert(free_.end(), table.begin(), table.end());
    return outputs;
  }

 private:
  static KvCacheLayout layout(const Shape& shape, int num_blocks) {
    return {1, shape.attention.num_kv_heads, shape.attention.head_dim, shape.block_size, num_blocks, shape.type};
  }

  void append(StepBatch& batch, std::vector<BlockId>& table, int first, int count) {
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
    batch.block_ids.insert(batch.block_ids.end(), table.begin(), table.end());
    batch.block_start.push_back(static_cast<std::int32_t>(batch.block_ids.size()));
  }

  Shape shape_;
  ThreadPool pool_;
  KvCache cache_;
  CpuBackend backend_;
  std::vector<BlockId> free_;
};

// Softmax attention in double over unquantised K and V.
std::vector<double> reference(const Shape& shape, const Sequence& s) {
  const AttentionShape& a = shape.attention;
  const int group = a.num_heads / a.num_kv_heads;
  const auto dim = static_cast<std::size_t>(a.head_dim);
  std::vector<double> out(s.q.size());
  for (int p = 0; p < s.length; ++p) {
    const int first = shape.window > 0 ? std::max(0, p - shape.window + 1) : 0;
    for (int h = 0; h < a.num_heads; ++h) {
      const float* q = s.q.data() + static_cast<std::size_t>(p * a.num_heads + h) * dim;
      std::vector<double> weights;
      double largest = -1e300;
      for (int t = first; t <= p; ++t) {
        const float* k = s.k.data() + static_cast<std::size_t>(t * a.num_kv_heads + h / group) * dim;
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * static_cast<double>(k[d]);
        weights.push_back(score / std::sqrt(static_cast<double>(dim)));
        largest = std::max(largest, weights.back());
      }
      double total = 0;
      for (double& w : weights) total += w = std::exp(w - largest);
      for (int t = first; t <= p; ++t) {
        const float* v = s.v.data() + static_cast<std::size_t>(t * a.num_kv_heads + h / group) * dim;
        for (std::size_t d = 0; d < dim; ++d) {
          out[static_cast<std::size_t>(p * a.num_heads + h) * dim + d] +=
              weights[static_cast<std::size_t>(t - first)] / total * static_cast<double>(v[d]);
        }
      }
    }
  }
  return out;
}

class Attention : public testing::TestWithParam<std::string> {};

TEST_P(Attention, AgreesWithDoubleOverShapes) {
  std::mt19937 random(17);
  const struct {
    AttentionShape shape;
    int block_size;
    int window;
  } cases[] = {
      {{9, 3, 64}, 16, 0},  {{8, 2, 64}, 32, 0}, {{8, 8, 80}, 16, 0},   {{12, 4, 96}, 16, 0},   {{14, 2, 64}, 64, 0},
      {{6, 1, 48}, 16, 33}, {{4, 4, 40}, 16, 0}, {{8, 2, 128}, 256, 0}, {{4, 1, 256}, 16, 100}, {{2, 1, 24}, 16, 1},
  };
  for (const auto& c : cases) {
    for (const KvType type : {KvType::kF32, KvType::kF16}) {
      const Shape shape{c.shape, type, c.block_size, c.window};
      std::vector<Sequence> sequences = {make_sequence(shape, 1, random), make_sequence(shape, 300, random)};
      Runner runner(shape, GetParam(), 1, 64, 1);
      const auto outputs = runner.run(sequences, 300);
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        const std::vector<double> expected = reference(shape, sequences[s]);
        double squares = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_NEAR(outputs[s][i], expected[i], type == KvType::kF32 ? 2e-5 : 5e-3)
              << "heads " << c.shape.num_heads << "/" << c.shape.num_kv_heads << "x" << c.shape.head_dim << " at " << i;
          squares +=
              (static_cast<double>(outputs[s][i]) - expected[i]) * (static_cast<double>(outputs[s][i]) - expected[i]);
        }
        EXPECT_LT(std::sqrt(squares / static_cast<double>(expected.size())), type == KvType::kF32 ? 2e-6 : 6e-4);
      }
    }
  }
}

TEST_P(Attention, BitsDoNotDependOnChunksThreadsNeighboursOrBlockNumbers) {
  std::mt19937 random(23);
  for (const int window : {0, 70}) {
    const Shape shape{{6, 2, 32}, KvType::kF16, 16, window};
    std::vector<Sequence> sequences;
    for (const int length : {700, 1, 256, 257, 31}) sequences.push_back(make_sequence(shape, length, random));
    std::vector<std::vector<float>> alone;
    for (const Sequence& s : sequences) alone.push_back(Runner(shape, GetParam(), 1, 200, 1).run({s}, 1000).front());
    for (const int threads : {1, 2}) {
      for (const int chunk : {1, 7, 64, 512}) {
        const auto together = Runner(shape, GetParam(), threads, 200, 99).run(sequences, chunk);
        for (std::size_t s = 0; s < sequences.size(); ++s) {
          ASSERT_EQ(together[s].size(), alone[s].size());
          EXPECT_EQ(std::memcmp(together[s].data(), alone[s].data(), alone[s].size() * sizeof(float)), 0)
              << "sequence " << s << " threads " << threads << " chunk " << chunk << " window " << window;
        }
      }
    }
    // One long sequence alone takes the path that splits partitions over workers.
    for (const int chunk : {1, 512}) {
      const auto split = Runner(shape, GetParam(), 2, 200, 5).run({sequences[0]}, chunk);
      EXPECT_EQ(std::memcmp(split[0].data(), alone[0].data(), alone[0].size() * sizeof(float)), 0)
          << "split, chunk " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Attention, testing::ValuesIn(available_levels()),
                         [](const auto& level) { return level.param; });

}  // namespace
}  // namespace folio::cpu
