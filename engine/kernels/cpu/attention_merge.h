// Partitions of a row's keys to one result, one text for all levels and KV types; included after a level's simd_*.h.
#pragma once

namespace folio::cpu {
namespace {

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
