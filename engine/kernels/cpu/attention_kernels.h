// Paged attention, one text for all levels; included after the chains of the KV types (attention_chains.h).
//
// Bit-stable in one scheme for decode and chunked prefill: keys are walked in fixed partitions counted from position 0,
// each partition is reduced alone and partitions merge in order. Inside a partition a score is one chain over the
// dimensions in order (one accumulator per row and key lane), an output dimension one chain over the keys in order from
// +0 (one per row and dimension), or both are exact integers; masked keys weigh exactly 0 and every slot is finite, so
// how many groups a tile walks does not matter. Softmax partials and their merge: Milakov, Gimelshein,
// arXiv:1805.02867; split over the keys as in Flash-Decoding.
#pragma once

namespace folio::cpu {
namespace {

// Masks one row's scores; their maximum, -inf if the row sees no key here.
inline float mask_row(const PartitionArgs& a, int row, int group_begin, int group_end, float* scores) {
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
  return max(largest);
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
  for (int r = 0; r < R; ++r) {
    a.maximum[row + r] = -__builtin_inff();
    a.sum[row + r] = 0.0F;
  }
  if (group_begin >= group_end) return;

  using C = Chain<T>;
  constexpr int kGroups = C::kGroups;
  typename C::Row rows[R];
  int g = group_begin;
  for (; g + kGroups <= group_end; g += kGroups) C::template score_groups<R, kGroups>(a, row, g, rows);
  for (; g < group_end; ++g) C::template score_groups<R, 1>(a, row, g, rows);
  bool any = false;
  for (int r = 0; r < R; ++r) {
    const float maximum = mask_row(a, row + r, group_begin, group_end, rows[r].scores);
    const bool seen = maximum > -__builtin_inff();
    a.maximum[row + r] = maximum;
    a.sum[row + r] = C::weigh(a, group_begin, group_end, seen ? maximum : 0.0F, rows[r]);  // all 0 if none is seen
    any = any || seen;
  }
  if (!any) return;
  int d = 0;
  for (; d + 16 * kGroups <= a.padded_dim; d += 16 * kGroups) {
    C::template weigh_values<R, kGroups>(a, row, group_begin, group_end, d, rows);
  }
  for (; d < a.padded_dim; d += 16) C::template weigh_values<R, 1>(a, row, group_begin, group_end, d, rows);
}

template <class T>
void attend_partition(const PartitionArgs& a) {
  constexpr int kRows = Chain<T>::kRows;
  static_assert(kRows <= 6);
  int row = 0;
  for (; row + kRows <= a.num_rows; row += kRows) attend_rows<T, kRows>(a, row);
  switch (a.num_rows - row) {
    case 1:
      attend_rows<T, 1>(a, row);
      break;
    case 2:
      if constexpr (kRows > 2) attend_rows<T, 2>(a, row);
      break;
    case 3:
      if constexpr (kRows > 3) attend_rows<T, 3>(a, row);
      break;
    case 4:
      if constexpr (kRows > 4) attend_rows<T, 4>(a, row);
      break;
    case 5:
      if constexpr (kRows > 5) attend_rows<T, 5>(a, row);
      break;
    default:
      break;
  }
}

template <class T>
constexpr void set_attention(KernelTable& table, KvType type) {
  table.prepare_query[static_cast<int>(type)] = Chain<T>::prepare;
  table.attend[static_cast<int>(type)] = attend_partition<T>;
}

}  // namespace
}  // namespace folio::cpu
