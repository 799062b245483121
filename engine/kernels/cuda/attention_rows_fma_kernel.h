// Decode attention for groups of 1 to 3 query heads, in float throughout: see attention_rows.h. Of a run of 16 keys a
// lane has half the score of one key (pieces of 8 dimensions in turn, so that a warp's reads meet no bank twice), then
// for all of them some pairs of output dimensions. Scales of K go to scores, those of V to weights.
#pragma once
#include "engine/kernels/cuda/attention_rows.h"

namespace folio::cuda {

inline constexpr int kFmaHeads = 3;

template <KvElement kElement, int kDim>
struct RowsFmaShape : RowsShape<kElement, kDim> {
  using Base = RowsShape<kElement, kDim>;
  // An odd number of 16-byte pieces, so that eight rows touch all banks.
  static constexpr int kPitch = (kStoredRowBytes<kElement, kDim> / 16 | 1) * 16;
  using Ring = KvRing<kElement, kDim, kPitch, kRun, Base::kWarps * kRun, kWarpSize, Base::kSlots>;
  static constexpr int kWarpBytes = Base::kSlots * Ring::kSlotBytes;
  static constexpr int kSharedBytes = kFmaHeads * kDim * 4 + Base::kWarps * kWarpBytes;
  // In the end the same memory holds what write_rows reads.
  static_assert(kWarpBytes >= kFmaHeads * (kSumsPitch<kDim> * 4 + static_cast<int>(sizeof(SoftmaxState))));
};

template <KvElement kElement, int kDim>
class WarpFma {
 public:
  using Type = KvType<kElement>;
  using Pair = typename Type::Pair;
  using Shape = RowsFmaShape<kElement, kDim>;
  static constexpr int kPairs = (kDim / 2 + kWarpSize - 1) / kWarpSize;  // output pairs of a lane

  FOLIO_DEVICE WarpFma(const AttentionItem& item, int group)
      : key_begin_(item.key_begin), key_end_(item.key_end), group_(group) {
#pragma unroll
    for (int head = 0; head < kFmaHeads; ++head) {
      max_[head] = -INFINITY;
      sum_[head] = 0.0F;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) out_[head][pair] = {0.0F, 0.0F};
    }
  }

  // queries: [group][kDim] floats in shared memory.
  FOLIO_DEVICE void weigh(const float* queries, const char* keys, const float* key_scales, int first_key) {
    const int of_run = lane() % kRun;
    const int key = first_key + of_run;
    const bool is_visible = key >= key_begin_ && key < key_end_;
    score(queries, keys + of_run * Shape::kPitch);
#pragma unroll
    for (int head = 0; head < kFmaHeads; ++head) {
      if (head >= group_) continue;
      float value = weights_[head] + shuffle_xor(weights_[head], 16);
      if constexpr (kHasScales<kElement>) value *= key_scales[of_run];
      if (!is_visible) value = -INFINITY;
      float max = fmaxf(max_[head], value);
#pragma unroll
      for (int lanes = 1; lanes < kRun; lanes *= 2) max = fmaxf(max, shuffle_xor(max, lanes));
      const float reference = finite_max(max);
      const float scale = exp2_fast(max_[head] - reference);
      max_[head] = max;
      weights_[head] = exp2_fast(value - reference);
      sum_[head] = fmaf(sum_[head], scale, weights_[head]);
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        out_[head][pair].x *= scale;
        out_[head][pair].y *= scale;
      }
    }
  }

  FOLIO_DEVICE void add_values(const char* values, const float* value_scales, int first_key) {
    if constexpr (kHasScales<kElement>) {
      const int key = first_key + lane() % kRun;
      const float scale = key >= key_begin_ && key < key_end_ ? value_scales[lane() % kRun] : 0.0F;
#pragma unroll
      for (int head = 0; head < kFmaHeads; ++head) weights_[head] *= scale;
    }
#pragma unroll 4
    for (int row = 0; row < kRun; ++row) {
      float weights[kFmaHeads] = {};
#pragma unroll
      for (int head = 0; head < kFmaHeads; ++head) {
        if (head < group_) weights[head] = shuffle(weights_[head], row);
      }
      const char* from = values + row * Shape::kPitch;
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int place = lane() + pair * kWarpSize;
        if (kDim / 2 % kWarpSize != 0 && place >= kDim / 2) continue;
        const float2 value = Type::widen(*reinterpret_cast<const Pair*>(from + place * static_cast<int>(sizeof(Pair))));
#pragma unroll
        for (int head = 0; head < kFmaHeads; ++head) {
          if (head >= group_) continue;
          out_[head][pair].x = fmaf(weights[head], value.x, out_[head][pair].x);
          out_[head][pair].y = fmaf(weights[head], value.y, out_[head][pair].y);
        }
      }
    }
  }

  // To [group][kSumsPitch] and [group]; all lanes call.
  FOLIO_DEVICE void write(float* sums, SoftmaxState* states) const {
#pragma unroll
    for (int head = 0; head < kFmaHeads; ++head) {
      if (head >= group_) continue;
      float sum = sum_[head];
#pragma unroll
      for (int lanes = 1; lanes < kRun; lanes *= 2) sum += shuffle_xor(sum, lanes);
      if (lane() == 0) states[head] = {max_[head], sum};
#pragma unroll
      for (int pair = 0; pair < kPairs; ++pair) {
        const int place = lane() + pair * kWarpSize;
        if (place < kDim / 2) *reinterpret_cast<float2*>(sums + head * kSumsPitch<kDim> + place * 2) = out_[head][pair];
      }
    }
  }

 private:
  static FOLIO_DEVICE int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }

  // weights_ = this lane's half of its key's scores.
  FOLIO_DEVICE void score(const float* queries, const char* key) {
#pragma unroll
    for (int head = 0; head < kFmaHeads; ++head) weights_[head] = 0.0F;
#pragma unroll 2
    for (int piece = lane() / kRun; piece < kDim / 8; piece += 2) {
      float2 wide[4];
      widen_piece(wide, key, piece);
#pragma unroll
      for (int part = 0; part < 2; ++part) {
#pragma unroll
        for (int head = 0; head < kFmaHeads; ++head) {
          if (head >= group_) continue;
          const auto q = bits_as<float4>(load_16(queries + head * kDim + piece * 8 + part * 4));
          const float2 low = wide[part * 2];
          const float2 high = wide[part * 2 + 1];
          float& sum = weights_[head];
          sum = fmaf(q.w, high.y, fmaf(q.z, high.x, fmaf(q.y, low.y, fmaf(q.x, low.x, sum))));
        }
      }
    }
  }

  static FOLIO_DEVICE void widen_piece(float2 (&wide)[4], const char* key, int piece) {
    if constexpr (kHasScales<kElement>) {
      const uint2 words = *reinterpret_cast<const uint2*>(key + piece * 8);
      wide[0] = Type::widen(static_cast<Pair>(words.x & 0xffffU));
      wide[1] = Type::widen(static_cast<Pair>(words.x >> 16));
      wide[2] = Type::widen(static_cast<Pair>(words.y & 0xffffU));
      wide[3] = Type::widen(static_cast<Pair>(words.y >> 16));
    } else {
      const uint4 words = load_16(key + piece * 16);
      wide[0] = Type::widen(words.x);
      wide[1] = Type::widen(words.y);
      wide[2] = Type::widen(words.z);
      wide[3] = Type::widen(words.w);
    }
  }

  int key_begin_, key_end_;
  int group_;
  float max_[kFmaHeads];
  float sum_[kFmaHeads];      // of this lane's keys; lanes 16 apart have the same
  float weights_[kFmaHeads];  // of this lane's key of the run
  float2 out_[kFmaHeads][kPairs];
};

template <KvElement kElement, int kDim>
FOLIO_KERNEL((RowsFmaShape<kElement, kDim>::kThreads))
attend_rows_fma_kernel(AttentionWork work) {
  using Shape = RowsFmaShape<kElement, kDim>;
  using Ring = typename Shape::Ring;
  const int index = static_cast<int>(blockIdx.x) / work.layout.num_kv_heads;  // KV heads lie side by side in a block
  if (index >= work.counts[kCountRowItems]) return;
  const int kv_head = static_cast<int>(blockIdx.x) % work.layout.num_kv_heads;
  const AttentionItem item = work.row_items[index];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int group = work.group();
  SharedArena arena;
  float* queries = arena.take<float>(kFmaHeads * kDim);
  char* warps = arena.take<char>(Shape::kWarps * Shape::kWarpBytes);

  const int first_key = item.key_begin / kRun * kRun + warp * kRun;
  Ring ring(work, item, kv_head, warps + warp * Shape::kWarpBytes, first_key, 0, lane);
  ring.start();
  const float* q = work.q + work.row_offset(work.rows[item.first_row], kv_head * group);
  for (int i = static_cast<int>(threadIdx.x); i < group * kDim; i += Shape::kThreads) {
    const int column = i % kDim;
    queries[i] = column < work.head_dim ? q[i / kDim * work.head_dim + column] : 0.0F;
  }
  sync_cta();
  WarpFma<kElement, kDim> attention(item, group);
  const auto next_matrix = [&ring] {
    wait_copies<Shape::kSlots - 2>();
    sync_warp();  // it has landed for all lanes, and none reads the matrix before it any more
    return ring.next();
  };
  for (int key = first_key; key < item.key_end; key += Shape::kWarps * kRun) {
    const char* keys = next_matrix();
    attention.weigh(queries, keys, Ring::scales(keys), key);
    const char* values = next_matrix();
    attention.add_values(values, Ring::scales(values), key);
  }

  wait_copies<0>();
  sync_cta();  // the rings' memory is free
  auto* sums = reinterpret_cast<float*>(warps);
  auto* states = reinterpret_cast<SoftmaxState*>(sums + Shape::kWarps * group * kSumsPitch<kDim>);
  attention.write(sums + warp * group * kSumsPitch<kDim>, states + warp * group);
  sync_cta();
  write_rows<kDim, Shape::kWarps>(work, item, kv_head, sums, states);
}

}  // namespace folio::cuda
