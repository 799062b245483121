// The plain twin of attention with AVX512_BF16, bit for bit: what one lane of the dot product computes, and what is
// rounded where, written as loops over floats.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/engine/kernels/attention_runner.h"
#include "tests/engine/kernels/levels.h"

namespace folio::cpu {
namespace {

float round_to_bf16(float x) {
  const auto bits = __builtin_bit_cast(std::uint32_t, x);
  return __builtin_bit_cast(float, (bits + 0x7FFFU + (bits >> 16U & 1U)) & 0xFFFF0000U);
}
float flush(float x) {
  return std::fabs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x;
}
// The second of a pair first; subnormal operands and results are 0.
float dot2(float acc, float a0, float b0, float a1, float b1) {
  acc = flush(std::fma(flush(a1), flush(b1), acc));
  return flush(std::fma(flush(a0), flush(b0), acc));
}
float exp2_of(float x) {
  if (!(x >= -126.0F)) return 0.0F;
  const float n = std::nearbyint(x);
  float p = 0.0001534581242594868F;
  for (const float c : {0.0013399930903688073F, 0.009618489071726799F, 0.05550328642129898F, 0.24022646248340607F,
                        0.6931471824645996F, 1.0F}) {
    p = std::fma(p, x - n, c);
  }
  return std::ldexp(p, static_cast<int>(n));
}

// Row `head` of the token at `position`, of a sequence that is one partition.
std::vector<float> twin(const Shape& shape, const Sequence& s, int position, int head) {
  const AttentionShape& a = shape.attention;
  const int dim = a.head_dim;
  const auto at = [&](const std::vector<float>& x, int heads, int t, int h, int d) {
    return d < dim ? x[static_cast<std::size_t>((t * heads + h) * dim + d)] : 0.0F;
  };
  const int kv_head = head / (a.num_heads / a.num_kv_heads);
  const float factor = 1.0F / std::sqrt(static_cast<float>(dim)) * 1.4426950408889634F;
  const auto query = [&](int d) { return round_to_bf16(at(s.q, a.num_heads, position, head, d) * factor); };
  const auto key = [&](int t, int d) { return round_to_bf16(at(s.k, a.num_kv_heads, t, kv_head, d)); };
  const auto value = [&](int t, int d) { return round_to_bf16(at(s.v, a.num_kv_heads, t, kv_head, d)); };
  std::vector<float> weights(static_cast<std::size_t>(position + 1));
  for (int t = 0; t <= position; ++t) {
    float& score = weights[static_cast<std::size_t>(t)];
    for (int d = 0; d < dim; d += 2) score = dot2(score, query(d), key(t, d), query(d + 1), key(t, d + 1));
  }
  const float maximum = *std::max_element(weights.begin(), weights.end());
  float lanes[16] = {};
  for (int t = 0; t <= position; ++t) {
    float& weight = weights[static_cast<std::size_t>(t)];
    weight = round_to_bf16(exp2_of(weight - maximum));
    lanes[t % 16] += weight;
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  weights.push_back(0.0F);  // the key after the last weighs nothing
  std::vector<float> out;
  for (int d = 0; d < dim; ++d) {
    float acc = 0.0F;
    for (int t = 0; t <= position; t += 2) {
      acc = dot2(acc, weights[static_cast<std::size_t>(t)], value(t, d), weights[static_cast<std::size_t>(t + 1)],
                 t < position ? value(t + 1, d) : 0.0F);
    }
    out.push_back((acc + 0.0F) * (1.0F / lanes[0]));  // never -0 before the division
  }
  return out;
}

TEST(AttentionBf16, BitsOfThePlainTwin) {
  const std::vector<std::string> levels = available_levels();
  if (std::find(levels.begin(), levels.end(), "avx512bf16") == levels.end()) {
    GTEST_SKIP() << "this CPU lacks AVX512_BF16";
  }
  std::mt19937 random(41);
  for (const int dim : {64, 18, 7}) {
    const Shape shape{{4, 2, dim}, KvType::kBF16, 16, 0};
    Sequence sequence = make_sequence(shape, 130, random);
    for (std::size_t i = 0; i < sequence.v.size(); i += 7) sequence.v[i] *= 1e-38F;  // subnormal, also as products
    const auto output = AttentionRunner(shape, "avx512bf16", 1, 32, 1).run({sequence}, 64)[0];
    for (int position = 0; position < sequence.length; position += 3) {
      for (int head = 0; head < shape.attention.num_heads; ++head) {
        const std::vector<float> expected = twin(shape, sequence, position, head);
        const float* row =
            output.data() + static_cast<std::ptrdiff_t>((position * shape.attention.num_heads + head) * dim);
        for (int d = 0; d < dim; ++d) {
          ASSERT_EQ(__builtin_bit_cast(std::uint32_t, row[d]),
                    __builtin_bit_cast(std::uint32_t, expected[static_cast<std::size_t>(d)]))
              << "dim " << d << " of " << dim << ", position " << position << ", head " << head << ": " << row[d]
              << " for " << expected[static_cast<std::size_t>(d)];
        }
      }
    }
  }
}

}  // namespace
}  // namespace folio::cpu
