// Attention over int8 K and V with the byte dot products, in exact integers. Queries and weights become integers of 14
// bits, each cut into two parts of 7, so that a dot product of either part with bytes is exact on every level (the pair
// sums of AVX2 stay within 16 bits):
//   score  = (sum over dims of K * Q) * (scale of the key * scale of the query row),   Q = round(q / scale)
//   weight = 2^(score - maximum) * scale of the key's V
//   acc    = (sum over keys of W * V) * scale of the weights,                           W = round(weight / scale)
// Both scales come from the row itself: its query, and its weights of the partition, where a key that it does not see
// weighs 0. The sums fit 32 bits: 128 * 64 * 255 * dims up to 1024 of them, and 256 keys * 16383 * 127.
#pragma once

namespace folio::cpu {
namespace {

// A query row: 64 bytes of header, then the upper parts, then the lower ones, each padded to 16. Q = 128 upper + lower,
// both in [-64, 63]. K is stored as k + 128: sum of k * Q = start + sum of stored * Q.
struct Int8Query {
  float scale;
  std::int32_t start;
  static constexpr std::size_t kHeader = 64;
};

template <>
struct Chain<std::int8_t> {
  static constexpr int kRows = kInt8Rows;
  static constexpr int kGroups = kInt8Groups;
  static constexpr float kQuerySteps = 8127.0F;  // |Q| at most: what two parts hold on the side that is shorter
  static constexpr float kWeightSteps = 16383.0F;

  struct Row {
    alignas(64) float scores[kPartition];
    alignas(64) std::uint8_t upper[kPartition];  // of W = 128 upper + lower, both in [0, 127]
    alignas(64) std::uint8_t lower[kPartition];
    float scale;
  };

  static void prepare(const float* q, int head_dim, std::byte* to) {
    const auto dims = [&](int d) { return clamp(load_first(q + d, head_dim - d < 16 ? head_dim - d : 16), 3.0e38F); };
    Vec largest = set1(0.0F);
    for (int d = 0; d < head_dim; d += 16) largest = max(abs(dims(d)), largest);
    const float most = max(largest);
    const Vec steps = set1(most > 1e-30F ? kQuerySteps / most : 0.0F);
    const int padded = (head_dim + 15) / 16 * 16;
    auto* upper = reinterpret_cast<std::uint8_t*>(to + Int8Query::kHeader);
    std::uint8_t* lower = upper + padded;
    // Q + 64 * 128 + 64 = 128 (upper + 64) + (lower + 64): not negative, and cut without a carry.
    const Vec offset = set1(64.0F * 128.0F + 64.0F);
    for (int d = 0; d < head_dim; d += 16) store_parts(upper + d, lower + d, fma(dims(d), steps, offset));
    std::int32_t total = 0;
    for (int d = 0; d < padded; ++d) {
      upper[d] = static_cast<std::uint8_t>(upper[d] - 64);
      lower[d] = static_cast<std::uint8_t>(lower[d] - 64);
      total += 128 * static_cast<std::int8_t>(upper[d]) + static_cast<std::int8_t>(lower[d]);
    }
    auto* header = reinterpret_cast<Int8Query*>(to);
    header->scale = most > 1e-30F ? most / kQuerySteps : 0.0F;
    header->start = -128 * total;
  }

  template <int R, int G>
  static inline void score_groups(const PartitionArgs& a, int row, int group, Row (&rows)[R]) {
    const int padded = (a.head_dim + 15) / 16 * 16;
    const std::byte* queries[R];
    Ints upper[R][G];
    Ints lower[R][G];
    for (int r = 0; r < R; ++r) {
      queries[r] = a.query(row + r) + Int8Query::kHeader;
      for (int g = 0; g < G; ++g) {
        upper[r][g] = set1(std::int32_t{0});
        lower[r][g] = set1(elements<Int8Query>(a.query(row + r))->start);
      }
    }
    const int units = (a.head_dim + 3) / 4;
    walk_units<64 * G>(*a.ahead, units, units > G ? units / G : units, [&](int u) {
      Bytes k[G];
      for (int g = 0; g < G; ++g) k[g] = load_bytes(elements<std::uint8_t>(a.keys(group + g)) + u * 64);
      for (int r = 0; r < R; ++r) {
        const std::int32_t high = load_four(queries[r] + 4 * u);
        const std::int32_t low = load_four(queries[r] + padded + 4 * u);
        for (int g = 0; g < G; ++g) upper[r][g] = dot4_part(upper[r][g], k[g], high);
        for (int g = 0; g < G; ++g) lower[r][g] = dot4_part(lower[r][g], k[g], low);
      }
    });
    for (int g = 0; g < G; ++g) {
      const Vec scales = load(elements<float>(a.keys(group + g) + a.key_scales_at));
      for (int r = 0; r < R; ++r) {
        const Vec scale = mul(scales, set1(elements<Int8Query>(a.query(row + r))->scale));
        store(rows[r].scores + (group + g) * 16, mul(to_float(join_parts(upper[r][g], lower[r][g])), scale));
      }
    }
  }

  static inline float weigh(const PartitionArgs& a, int group_begin, int group_end, float maximum, Row& row) {
    Vec total = set1(0.0F);
    Vec largest = set1(0.0F);
    for (int g = group_begin; g < group_end; ++g) {
      const Vec p = exp2(sub(load(row.scores + g * 16), set1(maximum)));
      total = add(total, p);
      const Vec w = mul(p, load(elements<float>(a.values(g) + a.value_scales_at)));
      largest = max(largest, w);
      store(row.scores + g * 16, w);
    }
    const float most = max(largest);
    row.scale = most > 1e-30F ? most / kWeightSteps : 0.0F;
    const Vec steps = set1(most > 1e-30F ? kWeightSteps / most : 0.0F);
    for (int g = group_begin; g < group_end; ++g) {
      store_parts(row.upper + g * 16, row.lower + g * 16, mul(load(row.scores + g * 16), steps));
    }
    return sum(total);
  }

  template <int R, int D>
  static inline void weigh_values(const PartitionArgs& a, int row, int group_begin, int group_end, int d,
                                  const Row (&rows)[R]) {
    Ints upper[R][D];
    Ints lower[R][D];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < D; ++i) upper[r][i] = lower[r][i] = set1(std::int32_t{0});
    }
    for (int g = group_begin; g < group_end; ++g) {
      const std::uint8_t* values = elements<std::uint8_t>(a.values(g)) + d * 4;
      walk_units<64 * D>(*a.ahead, 4, 4, [&](int u) {
        Bytes v[D];
        for (int i = 0; i < D; ++i) v[i] = load_bytes(values + u * 4 * a.padded_dim + i * 64);
        for (int r = 0; r < R; ++r) {
          const std::int32_t high = load_four(rows[r].upper + g * 16 + 4 * u);
          const std::int32_t low = load_four(rows[r].lower + g * 16 + 4 * u);
          for (int i = 0; i < D; ++i) upper[r][i] = dot4_signed(upper[r][i], high, v[i]);
          for (int i = 0; i < D; ++i) lower[r][i] = dot4_signed(lower[r][i], low, v[i]);
        }
      });
    }
    Vec acc[R][D];
    for (int r = 0; r < R; ++r) {
      for (int i = 0; i < D; ++i) acc[r][i] = mul(to_float(join_parts(upper[r][i], lower[r][i])), set1(rows[r].scale));
    }
    store_values(a, row, d, acc);
  }

 private:
  static inline std::int32_t load_four(const void* p) {
    std::int32_t four;
    __builtin_memcpy(&four, p, 4);
    return four;
  }
};

}  // namespace
}  // namespace folio::cpu
