// Attention in float: K and V are widened exactly and go through chains of FMAs. f16 and f32 at every level, bf16 where
// the level has no dot product for it.
#pragma once

namespace folio::cpu {
namespace {

// One vector load of the cache: 16 lanes (tokens of K, dims of V) of kPack elements that lie side by side (dims of K,
// tokens of V; see kv_cache.h). part<J> gives element J of every lane.
template <class T>  // float, Half
struct KvUnit {
  static constexpr int kPack = 1;
  Vec elements;
  static inline KvUnit at(const T* p) { return {load(p)}; }
  template <int J>
  inline Vec part() const {
    return elements;
  }
};

template <>
struct KvUnit<BFloat16> {
  static constexpr int kPack = 2;
  Bytes bytes;
  static inline KvUnit at(const BFloat16* p) { return {load_bytes(reinterpret_cast<const std::uint8_t*>(p))}; }
  template <int J>
  inline Vec part() const {
    return bf16_of<J>(bytes);
  }
};

template <class T>
struct FloatChain {
  using Unit = KvUnit<T>;
  static constexpr int kPack = Unit::kPack;
  static constexpr int kUnitBytes = 16 * kPack * static_cast<int>(sizeof(T));
  static constexpr int kRows = kAttentionRows;
  static constexpr int kGroups = kAttentionGroups;

  struct Row {
    alignas(64) float scores[kPartition];  // then the weights
  };

  static void prepare(const float* q, int head_dim, std::byte* to) {
    auto* out = reinterpret_cast<float*>(to);
    for (int d = 0; d < head_dim; d += 16) store(out + d, load_first(q + d, head_dim - d < 16 ? head_dim - d : 16));
  }

  // sums += x[at + J] * element J of the units: one link of every chain.
  template <int J, int R, int N>
  static inline void add(const Unit (&units)[N], const float* const (&x)[R], int at, Vec (&sums)[R][N]) {
    Vec part[N];
    for (int i = 0; i < N; ++i) part[i] = units[i].template part<J>();
    for (int r = 0; r < R; ++r) {
      const Vec factor = set1(x[r][at + J]);
      for (int i = 0; i < N; ++i) sums[r][i] = fma(factor, part[i], sums[r][i]);
    }
  }

  template <int R, int G>
  static inline void score_groups(const PartitionArgs& a, int row, int group, Row (&rows)[R]) {
    const float* queries[R];
    Vec s[R][G];
    for (int r = 0; r < R; ++r) {
      queries[r] = elements<float>(a.query(row + r));
      for (int g = 0; g < G; ++g) s[r][g] = set1(0.0F);
    }
    const int units = (a.head_dim + kPack - 1) / kPack;
    walk_units<kUnitBytes * G>(*a.ahead, units, units > G ? units / G : units, [&](int u) {
      Unit k[G];
      for (int g = 0; g < G; ++g) k[g] = Unit::at(elements<T>(a.keys(group + g)) + u * 16 * kPack);
      add<0>(k, queries, u * kPack, s);
      if constexpr (kPack > 1) {
        if (u * kPack + 1 < a.head_dim) add<1>(k, queries, u * kPack, s);  // else the pair's second is padding
      }
    });
    store_scores(rows, group, s);
  }

  static inline float weigh(const PartitionArgs& /*a*/, int group_begin, int group_end, float maximum, Row& row) {
    Vec total = set1(0.0F);
    for (int g = group_begin; g < group_end; ++g) {
      const Vec p = exp2(sub(load(row.scores + g * 16), set1(maximum)));
      total = cpu::add(total, p);
      store(row.scores + g * 16, p);
    }
    return sum(total);
  }

  template <int R, int D>
  static inline void weigh_values(const PartitionArgs& a, int row, int group_begin, int group_end, int d,
                                  const Row (&rows)[R]) {
    const float* weights[R];
    Vec acc[R][D];
    for (int r = 0; r < R; ++r) {
      weights[r] = rows[r].scores;
      for (int i = 0; i < D; ++i) acc[r][i] = set1(0.0F);
    }
    for (int g = group_begin; g < group_end; ++g) {
      const T* values = elements<T>(a.values(g)) + d * kPack;
      walk_units<kUnitBytes * D>(*a.ahead, 16 / kPack, 16 / kPack, [&](int u) {
        Unit v[D];
        for (int i = 0; i < D; ++i) v[i] = Unit::at(values + u * kPack * a.padded_dim + i * 16 * kPack);
        add<0>(v, weights, g * 16 + u * kPack, acc);
        if constexpr (kPack > 1) add<1>(v, weights, g * 16 + u * kPack, acc);
      });
    }
    store_values(a, row, d, acc);
  }
};

template <class T>
struct Chain : FloatChain<T> {};

}  // namespace
}  // namespace folio::cpu
