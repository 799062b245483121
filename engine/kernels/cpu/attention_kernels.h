// Paged attention, one text for all levels; included after a level's simd_*.h.
//
// Bit-stable in one scheme for decode and chunked prefill: keys are walked in fixed partitions counted from position 0,
// each partition is reduced alone and partitions merge in order. Inside a partition a score is one chain over the
// dimensions in order (one accumulator per row and key lane), an output dimension one chain over the keys in order from
// +0 (one per row and dimension); masked keys weigh exactly 0 and every slot is finite, so how many groups a tile walks
// does not matter. Elements are widened to float exactly; an int8 key's scale multiplies the finished score, an int8
// value's scale the key's weight. Softmax partials and their merge: Milakov, Gimelshein, arXiv:1805.02867; split over
// the keys as in Flash-Decoding.
#pragma once

namespace folio::cpu {
namespace {

template <class T>
inline const T* elements(const std::byte* group) {
  return reinterpret_cast<const T*>(group);
}

// s += q[d + J] * k[d + J]: one link of every chain.
template <int J, class Unit, int R, int G>
inline void add_dim(const Unit (&k)[G], const float* const* queries, int d, Vec (&s)[R][G]) {
  Vec part[G];
  for (int g = 0; g < G; ++g) part[g] = k[g].template part<J>();
  for (int r = 0; r < R; ++r) {
    const Vec q = set1(queries[r][d + J]);
    for (int g = 0; g < G; ++g) s[r][g] = fma(q, part[g], s[r][g]);
  }
}

// Scores of R rows and G groups of 16 keys: [row][kPartition].
template <class T, int R, int G>
inline void score_groups(const PartitionArgs& a, const float* const* queries, int group, float (*scores)[kPartition]) {
  using Unit = KvUnit<T>;
  Vec s[R][G];
  for (int r = 0; r < R; ++r) {
    for (int g = 0; g < G; ++g) s[r][g] = set1(0.0F);
  }
  for (int d = 0; d < a.head_dim; d += Unit::kPack) {
    Unit k[G];
    for (int g = 0; g < G; ++g) k[g] = Unit::keys(elements<T>(a.keys[group + g]) + d * 16);
    const int n = a.head_dim - d;  // the last unit may hold fewer dims than kPack
    add_dim<0>(k, queries, d, s);
    if constexpr (Unit::kPack > 1) {
      if (n > 1) add_dim<1>(k, queries, d, s);
    }
    if constexpr (Unit::kPack > 2) {
      if (n > 2) add_dim<2>(k, queries, d, s);
      if (n > 3) add_dim<3>(k, queries, d, s);
    }
  }
  for (int g = 0; g < G; ++g) {
    for (int r = 0; r < R; ++r) {
      if constexpr (Unit::kScaled) s[r][g] = mul(s[r][g], load(elements<float>(a.keys[group + g] + a.key_scales_at)));
      store(scores[r] + (group + g) * 16, s[r][g]);
    }
  }
}

// Masks one row's scores, turns them into weights 2^(score - maximum), times the scale of the key's V where the type
// has scales; false if the row sees no key here.
template <class T>
inline bool weigh_row(const PartitionArgs& a, int row, int group_begin, int group_end, float* scores) {
  Vec largest = set1(-__builtin_inff());
  for (int g = group_begin; g < group_end; ++g) {
    const int start = a.partition_start + g * 16;
    const int begin = a.first_key[row] - start;
    const int end = a.end_key[row] - start;
    Vec s = load(scores + g * 16);
    if (begin > 0 || end < 16) {
      s = keep_lanes(s, begin < 0 ? 0 : begin > 16 ? 16 : begin, end < 0 ? 0 : end > 16 ? 16 : end);
      store(scores + g * 16, s);
    }
    largest = max(largest, s);
  }
  const float maximum = max(largest);
  a.maximum[row] = maximum;
  a.sum[row] = 0.0F;
  if (!(maximum > -__builtin_inff())) return false;
  const Vec m = set1(maximum);
  Vec total = set1(0.0F);
  for (int g = group_begin; g < group_end; ++g) {
    Vec p = exp2(sub(load(scores + g * 16), m));
    total = add(total, p);
    if constexpr (KvUnit<T>::kScaled) p = mul(p, load(elements<float>(a.values[g] + a.value_scales_at)));
    store(scores + g * 16, p);
  }
  a.sum[row] = sum(total);
  return true;
}

// acc += weight of token t + J * its V: one link of every chain.
template <int J, class Unit, int R, int D>
inline void add_token(const Unit (&v)[D], const float (*scores)[kPartition], int t, Vec (&acc)[R][D]) {
  Vec part[D];
  for (int i = 0; i < D; ++i) part[i] = v[i].template part<J>();
  for (int r = 0; r < R; ++r) {
    const Vec p = set1(scores[r][t + J]);
    for (int i = 0; i < D; ++i) acc[r][i] = fma(p, part[i], acc[r][i]);
  }
}

// acc[row][dims d .. d + 16 D) = sum over keys in order of weight * V.
template <class T, int R, int D>
inline void weigh_values(const PartitionArgs& a, int row, int group_begin, int group_end, int d,
                         const float (*scores)[kPartition]) {
  using Unit = KvUnit<T>;
  Vec acc[R][D];
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < D; ++i) acc[r][i] = set1(0.0F);
  }
  for (int g = group_begin; g < group_end; ++g) {
    const T* values = elements<T>(a.values[g]) + d * Unit::kPack;
    for (int t = 0; t < 16; t += Unit::kPack) {
      Unit v[D];
      for (int i = 0; i < D; ++i) v[i] = Unit::values(values + t * a.padded_dim + i * 16 * Unit::kPack);
      add_token<0>(v, scores, g * 16 + t, acc);
      if constexpr (Unit::kPack > 1) add_token<1>(v, scores, g * 16 + t, acc);
      if constexpr (Unit::kPack > 2) {
        add_token<2>(v, scores, g * 16 + t, acc);
        add_token<3>(v, scores, g * 16 + t, acc);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    float* out = a.acc + static_cast<std::size_t>(row + r) * static_cast<std::size_t>(a.padded_dim) + d;
    for (int i = 0; i < D; ++i) store(out + i * 16, acc[r][i]);
  }
}

template <class T, int R>
inline void attend_rows(const PartitionArgs& a, int row) {
  // Only groups that one of these rows sees.
  int first = a.first_key[row];
  int end = a.end_key[row];
  for (int r = 1; r < R; ++r) {
    first = a.first_key[row + r] < first ? a.first_key[row + r] : first;
    end = a.end_key[row + r] > end ? a.end_key[row + r] : end;
  }
  int group_begin = (first - a.partition_start) >> 4;
  int group_end = (end - a.partition_start + 15) >> 4;
  group_begin = group_begin < a.group_begin ? a.group_begin : group_begin;
  group_end = group_end > a.group_end ? a.group_end : group_end;
  if (group_begin >= group_end) {
    for (int r = 0; r < R; ++r) {
      a.maximum[row + r] = -__builtin_inff();
      a.sum[row + r] = 0.0F;
    }
    return;
  }
  alignas(64) float scores[R][kPartition];
  int g = group_begin;
  for (; g + kAttentionGroups <= group_end; g += kAttentionGroups) {
    score_groups<T, R, kAttentionGroups>(a, a.queries + row, g, scores);
  }
  for (; g < group_end; ++g) score_groups<T, R, 1>(a, a.queries + row, g, scores);
  bool any = false;
  for (int r = 0; r < R; ++r) {
    if (weigh_row<T>(a, row + r, group_begin, group_end, scores[r])) {
      any = true;
    } else {
      for (int i = group_begin * 16; i < group_end * 16; ++i) scores[r][i] = 0.0F;
    }
  }
  if (!any) return;
  int d = 0;
  for (; d + 16 * kAttentionGroups <= a.padded_dim; d += 16 * kAttentionGroups) {
    weigh_values<T, R, kAttentionGroups>(a, row, group_begin, group_end, d, scores);
  }
  for (; d < a.padded_dim; d += 16) weigh_values<T, R, 1>(a, row, group_begin, group_end, d, scores);
}

template <class T>
void attend_partition(const PartitionArgs& a) {
  static_assert(kAttentionRows <= 6);
  int row = 0;
  for (; row + kAttentionRows <= a.num_rows; row += kAttentionRows) attend_rows<T, kAttentionRows>(a, row);
  switch (a.num_rows - row) {
    case 1:
      attend_rows<T, 1>(a, row);
      break;
    case 2:
      if constexpr (kAttentionRows > 2) attend_rows<T, 2>(a, row);
      break;
    case 3:
      if constexpr (kAttentionRows > 3) attend_rows<T, 3>(a, row);
      break;
    case 4:
      if constexpr (kAttentionRows > 4) attend_rows<T, 4>(a, row);
      break;
    case 5:
      if constexpr (kAttentionRows > 5) attend_rows<T, 5>(a, row);
      break;
    default:
      break;
  }
}

void merge_rows(int rows, int padded_dim, const float* maximum, const float* sum, const float* acc, float* to_maximum,
                float* to_sum, float* to_acc) {
  for (int r = 0; r < rows; ++r) {
    if (!(maximum[r] > -__builtin_inff())) continue;
    const float* from = acc + static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_dim);
    float* to = to_acc + static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_dim);
    if (!(to_maximum[r] > -__builtin_inff())) {
      to_maximum[r] = maximum[r];
      to_sum[r] = sum[r];
      for (int d = 0; d < padded_dim; d += 16) store(to + d, load(from + d));
      continue;
    }
    const float m = maximum[r] > to_maximum[r] ? maximum[r] : to_maximum[r];
    alignas(64) float lanes[16];
    store(lanes, exp2(sub(set1(to_maximum[r]), set1(m))));
    const Vec keep = set1(lanes[0]);
    store(lanes, exp2(sub(set1(maximum[r]), set1(m))));
    const Vec take = set1(lanes[0]);
    store(lanes, fma(set1(sum[r]), take, mul(set1(to_sum[r]), keep)));
    to_maximum[r] = m;
    to_sum[r] = lanes[0];
    for (int d = 0; d < padded_dim; d += 16) store(to + d, fma(load(from + d), take, mul(load(to + d), keep)));
  }
}

void finish_row(const float* acc, float total, int head_dim, float* out) {
  const Vec factor = set1(1.0F / total);
  int d = 0;
  for (; d + 16 <= head_dim; d += 16) store(out + d, mul(load(acc + d), factor));
  if (d < head_dim) store_first(out + d, mul(load(acc + d), factor), head_dim - d);
}

}  // namespace
}  // namespace folio::cpu
