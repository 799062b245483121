// What attention over a KV type computes with; attention_kernels.h says the scheme. Included after a level's simd_*.h.
//
// Chain<T>, T the stored element, provides
//   kRows, kGroups              the tile: query rows at most, and groups of 16 keys (or of 16 dims) beside them
//   Row                         one row's scores of a partition, and what becomes of them
//   prepare(q, dim, to)         a query row as score_groups wants it, in query_bytes(dim)
//   score_groups<R, G>(...)     the scores of R rows against G groups
//   weigh(...)                  scores to the weights that weigh_values wants; returns their sum
//   weigh_values<R, D>(...)     acc = sum over the keys of weight * V, for 16 D dims
// A row's numbers never depend on R, G, D, nor on how many groups beyond those it sees are walked.
#pragma once

namespace folio::cpu {
namespace {

template <class T>
struct Chain;

// Finite whatever comes: NaN becomes the lower bound (min and max give their second argument for it).
inline Vec clamp(Vec x, float bound) {
  return min(max(x, set1(-bound)), set1(bound));
}

template <class T>
inline const T* elements(const std::byte* p) {
  return reinterpret_cast<const T*>(p);
}

// Walks `units` units of kBytes, and asks for as many bytes of what comes next: `run` units to a piece of that, so that
// groups walked side by side ask for one segment after the other.
template <int kBytes, class Fn>
inline __attribute__((always_inline)) void walk_units(FetchAhead& ahead, int units, int run, Fn&& fn) {
  for (int begin = 0; begin < units; begin += run) {
    const int end = begin + run < units ? begin + run : units;
    const std::byte* at = ahead.idle;
    if (ahead.segment != ahead.end) {
      at = *ahead.segment + ahead.offset;
      ahead.offset += run * kBytes;
      if (ahead.offset >= ahead.segment_bytes) {
        __builtin_prefetch(*ahead.segment + ahead.scales_at, 0, 2);
        ahead.offset = 0;
        ++ahead.segment;
      }
    }
    for (int u = begin; u < end; ++u, at += kBytes) {
      for (int i = 0; i < kBytes; i += 64) __builtin_prefetch(at + i, 0, 2);
      fn(u);
    }
  }
}

// R rows' scores of G groups to their places in the rows.
template <int R, int G, class Row>
inline void store_scores(Row (&rows)[R], int group, const Vec (&s)[R][G]) {
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) store(rows[r].scores + (group + g) * 16, s[r][g]);
  }
}

// A sum that fell to -0 becomes +0, as it would if one more masked key were walked.
template <int R, int D>
inline void store_values(const PartitionArgs& a, int row, int d, const Vec (&acc)[R][D]) {
  for (int r = 0; r < R; ++r) {
    float* out = a.acc + static_cast<std::size_t>(row + r) * static_cast<std::size_t>(a.padded_dim) + d;
    for (int i = 0; i < D; ++i) store(out + i * 16, add(acc[r][i], set1(0.0F)));
  }
}

}  // namespace
}  // namespace folio::cpu
