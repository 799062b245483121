// Attention over bf16 K and V with the CPU's dot product of pairs (AVX512_BF16). It takes bf16 on both sides, so
// queries and weights are rounded to nearest even too; a row is divided by the sum of its rounded weights. A lane of
// the dot product is fma(second of the pair) and then fma(first), subnormal operands and results as 0.
#pragma once

namespace folio::cpu {
namespace {

template <>
struct Chain<BFloat16> {
  static constexpr int kRows = kAttentionRows;
  static constexpr int kGroups = kAttentionGroups;

  struct Row {
    alignas(64) float scores[kPartition];
    alignas(64) BFloat16 weights[kPartition];
  };

  static void prepare(const float* q, int head_dim, std::byte* to) {
    auto* out = reinterpret_cast<BFloat16*>(to);
    for (int d = 0; d < head_dim; d += 16) {
      round_to_bf16(out + d, load_first(q + d, head_dim - d < 16 ? head_dim - d : 16));
    }
  }

  template <int R, int G>
  static inline void score_groups(const PartitionArgs& a, int row, int group, Row (&rows)[R]) {
    const std::byte* queries[R];
    Vec s[R][G];
    for (int r = 0; r < R; ++r) {
      queries[r] = a.query(row + r);
      for (int g = 0; g < G; ++g) s[r][g] = set1(0.0F);
    }
    const int units = (a.head_dim + 1) / 2;
    walk_units<64 * G>(*a.ahead, units, units > G ? units / G : units, [&](int u) {
      Bytes k[G];
      for (int g = 0; g < G; ++g) k[g] = load_bytes(elements<std::uint8_t>(a.keys(group + g)) + u * 64);
      for (int r = 0; r < R; ++r) {
        for (int g = 0; g < G; ++g) s[r][g] = dot2_bf16(s[r][g], k[g], queries[r] + 4 * u);
      }
    });
    store_scores(rows, group, s);
  }

  static inline float weigh(const PartitionArgs& /*a*/, int group_begin, int group_end, float maximum, Row& row) {
    Vec total = set1(0.0F);
    for (int g = group_begin; g < group_end; ++g) {
      const Vec p = exp2(sub(load(row.scores + g * 16), set1(maximum)));
      total = add(total, round_to_bf16(row.weights + g * 16, p));
    }
    return sum(total);
  }

  template <int R, int D>
  static inline void weigh_values(const PartitionArgs& a, int row, int group_begin, int group_end, int d,
                                  const Row (&rows)[R]) {
    Vec acc[R][D];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < D; ++i) acc[r][i] = set1(0.0F);
    }
    for (int g = group_begin; g < group_end; ++g) {
      const std::uint8_t* values = elements<std::uint8_t>(a.values(g)) + d * 4;
      walk_units<64 * D>(*a.ahead, 8, 8, [&](int u) {
        Bytes v[D];
        for (int i = 0; i < D; ++i) v[i] = load_bytes(values + u * 4 * a.padded_dim + i * 64);
        for (int r = 0; r < R; ++r) {
          for (int i = 0; i < D; ++i) acc[r][i] = dot2_bf16(acc[r][i], v[i], rows[r].weights + g * 16 + 2 * u);
        }
      });
    }
    store_values(a, row, d, acc);
  }
};

}  // namespace
}  // namespace folio::cpu
