// Paged attention through the backend, against a double reference over the cached values, and bit for bit against
// itself under other chunks, thread counts, block numbers and levels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/engine/kernels/attention_runner.h"
#include "tests/engine/kernels/kv_reader.h"
#include "tests/engine/kernels/levels.h"

namespace folio::cpu {
namespace {

// K or V of a sequence, [length][kv heads][dim]: as given, or as the cache has it.
using Values = std::vector<double>;
Values given(const std::vector<float>& x) {
  return {x.begin(), x.end()};
}
template <class Read>
Values cached(const Shape& shape, int length, const std::vector<BlockId>& table, Read read) {
  Values out;
  for (int p = 0; p < length; ++p) {
    const BlockId block = table[static_cast<std::size_t>(p / shape.block_size)];
    for (int h = 0; h < shape.attention.num_kv_heads; ++h) {
      for (int d = 0; d < shape.attention.head_dim; ++d) out.push_back(read(block, h, p % shape.block_size, d));
    }
  }
  return out;
}

// Softmax attention in double.
std::vector<double> reference(const Shape& shape, const Sequence& s, const Values& keys, const Values& values) {
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
        const double* k = keys.data() + static_cast<std::size_t>(t * a.num_kv_heads + h / group) * dim;
        double score = 0;
        for (std::size_t d = 0; d < dim; ++d) score += static_cast<double>(q[d]) * k[d];
        weights.push_back(score / std::sqrt(static_cast<double>(dim)));
        largest = std::max(largest, weights.back());
      }
      double total = 0;
      for (double& w : weights) total += w = std::exp(w - largest);
      for (int t = first; t <= p; ++t) {
        const double* v = values.data() + static_cast<std::size_t>(t * a.num_kv_heads + h / group) * dim;
        for (std::size_t d = 0; d < dim; ++d) {
          out[static_cast<std::size_t>(p * a.num_heads + h) * dim + d] +=
              weights[static_cast<std::size_t>(t - first)] / total * v[d];
        }
      }
    }
  }
  return out;
}

class Attention : public testing::TestWithParam<std::string> {};

struct Errors {
  double largest = 0, rms = 0;
};
Errors compare(const std::vector<float>& output, const std::vector<double>& expected) {
  Errors e;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double error = std::fabs(static_cast<double>(output[i]) - expected[i]);
    e.largest = std::isnan(error) ? INFINITY : std::max(e.largest, error);
    e.rms += error * error;
  }
  e.rms = std::sqrt(e.rms / static_cast<double>(expected.size()));
  return e;
}

// Largest and root mean square error that a type's rounding of normally distributed K and V may cause.
Errors allowed(KvType type) {
  switch (type) {
    case KvType::kF32:
      return {2e-5, 2e-6};
    case KvType::kF16:
      return {5e-3, 6e-4};
    case KvType::kBF16:
      return {4e-2, 5e-3};
    default:
      return {8e-2, 1.4e-2};
  }
}

// What the kernel's own arithmetic may add, against exact attention over the cached values: f16 and f32, and bf16 but
// for avx512bf16, round only in float. int8 cuts queries and weights into 14 bits, bf16's dot product takes 8: beside
// `allowed` the former is nothing, the latter as much again as K and V.
Errors of_arithmetic(KvType type, const std::string& level) {
  if (type == KvType::kInt8) return {1e-3, 4e-5};
  if (type == KvType::kBF16 && level == "avx512bf16") return {4e-2, 5e-3};
  return {2e-5, 2e-6};
}

TEST_P(Attention, AgreesWithDoubleOverShapesAndTypes) {
  std::mt19937 random(17);
  const struct {
    AttentionShape shape;
    int block_size;
    int window;
  } cases[] = {
      {{9, 3, 64}, 16, 0},  {{8, 2, 64}, 32, 0}, {{8, 8, 80}, 16, 0},   {{12, 4, 96}, 16, 0},
      {{6, 1, 48}, 16, 33}, {{4, 4, 40}, 16, 0}, {{8, 2, 128}, 256, 0}, {{4, 1, 256}, 16, 100},
      {{2, 1, 24}, 16, 1},  {{3, 1, 18}, 32, 0}, {{2, 2, 7}, 16, 40},  // K dims that fill no pair and no four
  };
  for (const auto& c : cases) {
    for (const KvType type : kv_types_of(GetParam())) {
      const Shape shape{c.shape, type, c.block_size, c.window};
      const std::vector<Sequence> sequences = {make_sequence(shape, 1, random), make_sequence(shape, 270, random)};
      AttentionRunner runner(shape, GetParam(), 1, 64, 1);
      const auto outputs = runner.run(sequences, 270);
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        const Sequence& sequence = sequences[s];
        const auto key = [&](auto... at) { return cached_key(runner.cache(), 0, at...); };
        const auto value = [&](auto... at) { return cached_value(runner.cache(), 0, at...); };
        const auto& table = runner.tables()[s];
        const auto exact = reference(shape, sequence, cached(shape, sequence.length, table, key),
                                     cached(shape, sequence.length, table, value));
        const std::string what = std::string(name_of(type)) + " heads " + std::to_string(c.shape.num_heads) + "/" +
                                 std::to_string(c.shape.num_kv_heads) + "x" + std::to_string(c.shape.head_dim);
        const Errors kernel = compare(outputs[s], exact);
        EXPECT_LT(kernel.largest, of_arithmetic(type, GetParam()).largest)
            << what << ": not what the cached values give";
        EXPECT_LT(kernel.rms, of_arithmetic(type, GetParam()).rms) << what;
        const Errors whole = compare(outputs[s], reference(shape, sequence, given(sequence.k), given(sequence.v)));
        EXPECT_LT(whole.largest, allowed(type).largest) << what;
        EXPECT_LT(whole.rms, allowed(type).rms) << what;
      }
    }
  }
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(Attention, BitsDoNotDependOnChunksThreadsNeighboursOrBlockNumbers) {
  std::mt19937 random(23);
  for (const KvType type : kv_types_of(GetParam())) {
    for (const int window : {0, 70}) {
      const Shape shape{{6, 2, 24}, type, 16, window};
      const std::string what = std::string(name_of(type)) + " window " + std::to_string(window);
      std::vector<Sequence> sequences;
      for (const int length : {700, 1, 256, 257, 31}) sequences.push_back(make_sequence(shape, length, random));
      std::vector<std::vector<float>> alone;
      for (const Sequence& s : sequences) {
        alone.push_back(AttentionRunner(shape, GetParam(), 1, 200, 1).run({s}, 1000).front());
      }
      for (const int threads : {1, 2}) {
        for (const int chunk : {1, 7, 64, 512}) {
          const auto together = AttentionRunner(shape, GetParam(), threads, 200, 99).run(sequences, chunk);
          for (std::size_t s = 0; s < sequences.size(); ++s) {
            EXPECT_TRUE(same_bits(together[s], alone[s]))
                << what << " sequence " << s << " threads " << threads << " chunk " << chunk;
          }
        }
      }
      // One long sequence alone takes the path that splits partitions over workers.
      for (const int chunk : {1, 512}) {
        const auto split = AttentionRunner(shape, GetParam(), 2, 200, 5).run({sequences[0]}, chunk);
        EXPECT_TRUE(same_bits(split[0], alone[0])) << what << " split, chunk " << chunk;
      }
    }
  }
}

// A query row that is no number is that row's trouble alone, also beside rows of its tile.
TEST_P(Attention, ABrokenQueryRowLeavesTheOthersBitsAlone) {
  std::mt19937 random(37);
  for (const KvType type : kv_types_of(GetParam())) {
    const Shape shape{{6, 2, 24}, type, 16, 0};
    const auto dim = static_cast<std::size_t>(shape.attention.head_dim);
    const Sequence sound = make_sequence(shape, 40, random);
    const auto expected = AttentionRunner(shape, GetParam(), 1, 8, 1).run({sound}, 40).front();
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      for (const std::size_t row : {0U, 100U, 239U}) {
        Sequence broken = sound;
        broken.q[row * dim + 5] = bad;
        auto output = AttentionRunner(shape, GetParam(), 1, 8, 1).run({broken}, 40).front();
        std::copy_n(expected.begin() + static_cast<std::ptrdiff_t>(row * dim), dim,
                    output.begin() + static_cast<std::ptrdiff_t>(row * dim));
        EXPECT_TRUE(same_bits(output, expected)) << name_of(type) << " " << bad << " in row " << row;
      }
    }
  }
}

// And it is NaN, not what the memory held from rows before it: one tile alone, and one that is cut into pieces.
TEST_P(Attention, ABrokenQueryRowIsNoNumber) {
  std::mt19937 random(41);
  for (const KvType type : kv_types_of(GetParam())) {
    if (type == KvType::kInt8) continue;  // its queries are clamped
    const Shape shape{{2, 2, 24}, type, 16, 0};
    const auto dim = static_cast<std::size_t>(shape.attention.head_dim);
    for (const int length : {40, 700}) {
      Sequence broken = make_sequence(shape, length, random);
      const Sequence sound = make_sequence(shape, 700, random);
      const std::size_t row = broken.q.size() / dim - 1;
      for (const float bad : {NAN, INFINITY}) {
        broken.q[row * dim + 5] = bad;
        for (const int threads : {1, 2}) {
          AttentionRunner runner(shape, GetParam(), threads, 100, 1);
          runner.run({sound}, 1);
          const auto output = runner.run({broken}, 1).front();
          for (std::size_t i = 0; i < output.size(); ++i) {
            ASSERT_EQ(std::isnan(output[i]), i / dim == row)
                << name_of(type) << " " << bad << " length " << length << " threads " << threads << " at " << i;
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Attention, testing::ValuesIn(available_levels()),
                         [](const auto& level) { return level.param; });

// Not promised by the contract (a level is an option), but so made: an FMA for an FMA, a rounding for a rounding. bf16
// at avx512bf16 alone is another arithmetic.
TEST(AttentionLevels, OfVectorsGiveTheSameBits) {
  const std::vector<std::string> levels = available_levels();
  if (levels.size() < 3) GTEST_SKIP() << "this CPU lacks avx2 or avx512";
  std::mt19937 random(31);
  for (const KvType type : kAllKvTypes) {
    for (const int dim : {64, 18, 7}) {
      const Shape shape{{6, 2, dim}, type, 16, 0};
      const std::vector<Sequence> sequences = {make_sequence(shape, 300, random)};
      const auto avx2 = AttentionRunner(shape, "avx2", 1, 64, 1).run(sequences, 64);
      for (std::size_t level = 2; level < levels.size(); ++level) {
        const auto other = AttentionRunner(shape, levels[level], 1, 64, 1).run(sequences, 64);
        const bool own = type == KvType::kBF16 && levels[level] == "avx512bf16";
        EXPECT_EQ(same_bits(avx2[0], other[0]), !own) << name_of(type) << " dim " << dim << " " << levels[level];
      }
    }
  }
}

}  // namespace
}  // namespace folio::cpu
