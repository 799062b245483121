// Partitions of a row's keys to one result, one text for all levels and KV types; included after a level's simd_*.h.
#pragma once

namespace folio::cpu {
namespace {

// One row, of which both sides have seen keys: to = to * keep + from * take.
inline void merge_row(int padded_dim, const float* from, float take, float* to, float keep) {
  const Vec t = set1(take);
  const Vec k = set1(keep);
  for (int d = 0; d < padded_dim; d += 16) store(to + d, fma(load(from + d), t, mul(load(to + d), k)));
}

void merge_rows(int rows, int padded_dim, const float* maximum, const float* sum, const float* acc, float* to_maximum,
                float* to_sum, float* to_acc) {
  alignas(64) float keep[16];
  alignas(64) float take[16];
  alignas(64) float larger[16];
  alignas(64) float total[16];
  for (int begin = 0; begin < rows; begin += 16) {
    const int n = rows - begin < 16 ? rows - begin : 16;
    const Vec from = load_first(maximum + begin, n);
    const Vec to = load_first(to_maximum + begin, n);
    const Vec m = max(from, to);
    const Vec k = exp2(sub(to, m));
    const Vec t = exp2(sub(from, m));
    store(larger, m);
    store(keep, k);
    store(take, t);
    store(total, fma(load_first(sum + begin, n), t, mul(load_first(to_sum + begin, n), k)));
    for (int i = 0; i < n; ++i) {
      const int r = begin + i;
      if (!(maximum[r] > -__builtin_inff())) continue;
      const float* part = acc + static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_dim);
      float* out = to_acc + static_cast<std::size_t>(r) * static_cast<std::size_t>(padded_dim);
      if (to_maximum[r] > -__builtin_inff()) {
        merge_row(padded_dim, part, take[i], out, keep[i]);
        to_sum[r] = total[i];
      } else {
        for (int d = 0; d < padded_dim; d += 16) store(out + d, load(part + d));
        to_sum[r] = sum[r];
      }
      to_maximum[r] = larger[i];
    }
  }
}

// A row sees its own key, whose weight is 1 at its maximum: a total of 0 means scores that are no numbers. Such a row
// is NaN, whatever `acc` holds.
void finish_row(const float* acc, float total, int head_dim, float* out) {
  const Vec factor = set1(total > 0.0F ? 1.0F / total : __builtin_nanf(""));
  int d = 0;
  for (; d + 16 <= head_dim; d += 16) store(out + d, mul(load(acc + d), factor));
  if (d < head_dim) store_first(out + d, mul(load(acc + d), factor), head_dim - d);
}

}  // namespace
}  // namespace folio::cpu
