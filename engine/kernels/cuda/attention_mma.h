// One warp's part of attention on the tensor cores: 16 rows of queries against kKeys keys at a time, in the manner of
// FlashAttention-2 (Dao, arXiv:2307.08691): scores, running maximum, weights and the weighted sum of V stay in
// registers, and the fragments of the scores are those of the weights. Layouts: multiply_add in device.h. A row is one
// (token, query head); what it gets is a function of its own keys, whatever the other 15 are.
#pragma once
#include "engine/kernels/cuda/attention_kv.h"

namespace folio::cuda {

inline constexpr int kWarpRows = 16;

// The keys that rows lane / 4 and lane / 4 + 8 see: [first, last].
struct VisibleKeys {
  int first[2];
  int last[2];
};

// Queries in shared memory, [16][kMmaPitch bytes]: in registers where there is room, else read again for each tile.
template <class Mma, int kDim>
class QueryFragments {
 public:
  static constexpr bool kInRegisters = kDim <= 128;
  explicit FOLIO_DEVICE QueryFragments(const char* rows) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    row_ = rows + (lane % 16) * kMmaPitch<kDim> + lane / 16 * 16;
    if constexpr (kInRegisters) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) load_matrices(fragments_[step], row_ + step * 32);
    }
  }
  FOLIO_DEVICE void get(std::uint32_t (&fragment)[4], int step) const {
    if constexpr (kInRegisters) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fragment[i] = fragments_[step][i];
    } else {
      load_matrices(fragment, row_ + step * 32);
    }
  }

 private:
  static constexpr int kSteps = kDim / 16;
  const char* row_;
  std::uint32_t fragments_[kInRegisters ? kSteps : 1][4];
};

template <class Mma, int kDim, int kKeys>
class WarpAttention {
 public:
  static constexpr int kColumns = kDim / 8;  // tiles of eight dimensions

  FOLIO_DEVICE WarpAttention() { reset(); }

  FOLIO_DEVICE void reset() {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      max_[i] = -INFINITY;
      sum_[i] = 0.0F;
    }
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) out_[column][i] = 0.0F;
    }
  }

  // Keys: [kKeys][kMmaPitch bytes].
  FOLIO_DEVICE void score(const QueryFragments<Mma, kDim>& queries, const char* keys) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const char* row = keys + (lane / 16 * 8 + lane % 8) * kMmaPitch<kDim> + lane / 8 % 2 * 16;
#pragma unroll
    for (int tile = 0; tile < kKeys / 8; ++tile) {
#pragma unroll
      for (int i = 0; i < 4; ++i) scores_[tile][i] = 0.0F;
    }
    // All steps where the queries are in registers, which have no index; else few, so that no loads pile up there.
    [[maybe_unused]] constexpr int kUnroll = QueryFragments<Mma, kDim>::kInRegisters ? kDim / 16 : 2;
#pragma unroll kUnroll
    for (int step = 0; step < kDim / 16; ++step) {
      std::uint32_t query[4];
      queries.get(query, step);
#pragma unroll
      for (int pair = 0; pair < kKeys / 16; ++pair) {
        std::uint32_t key[4];
        load_matrices(key, row + pair * 16 * kMmaPitch<kDim> + step * 32);
        multiply_add<Mma>(scores_[2 * pair], query, key[0], key[1]);
        multiply_add<Mma>(scores_[2 * pair + 1], query, key[2], key[3]);
      }
    }
  }

  // The scores of keys first_key ... become weights, of unseen ones 0; what was summed before is scaled to the new
  // maximum. A tile without a visible key changes nothing.
  FOLIO_DEVICE void weigh(int first_key, const VisibleKeys& visible) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (first_key < visible.first[half] || first_key + kKeys - 1 > visible.last[half]) {
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i) {
          const int key = first_key + i / 2 * 8 + lane % 4 * 2 + i % 2;
          if (key < visible.first[half] || key > visible.last[half]) scores_[i / 2][half * 2 + i % 2] = -INFINITY;
        }
      }
      float max = max_[half];
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) max = fmaxf(max, scores_[i / 2][half * 2 + i % 2]);
      max = fmaxf(max, shuffle_xor(max, 1));
      max = fmaxf(max, shuffle_xor(max, 2));
      const float reference = finite_max(max);
      const float scale = exp2_fast(max_[half] - reference);
      max_[half] = max;
      float sum = 0.0F;
#pragma unroll
      for (int i = 0; i < kKeys / 4; ++i) {
        float& weight = scores_[i / 2][half * 2 + i % 2];
        weight = exp2_fast(weight - reference);
        sum += weight;
      }
      sum_[half] = fmaf(sum_[half], scale, sum);
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        out_[column][half * 2] *= scale;
        out_[column][half * 2 + 1] *= scale;
      }
    }
  }

  // Values: [kKeys][kMmaPitch bytes].
  FOLIO_DEVICE void add_values(const char* values) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const char* row = values + lane % 16 * kMmaPitch<kDim> + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < kKeys / 16; ++step) {
      const std::uint32_t weights[4] = {pack<Mma>(scores_[2 * step][0], scores_[2 * step][1]),
                                        pack<Mma>(scores_[2 * step][2], scores_[2 * step][3]),
                                        pack<Mma>(scores_[2 * step + 1][0], scores_[2 * step + 1][1]),
                                        pack<Mma>(scores_[2 * step + 1][2], scores_[2 * step + 1][3])};
#pragma unroll
      for (int column = 0; column < kColumns; column += 2) {
        std::uint32_t value[4];
        load_matrices_transposed(value, row + step * 16 * kMmaPitch<kDim> + column * 16);
        multiply_add<Mma>(out_[column], weights, value[0], value[1]);
        multiply_add<Mma>(out_[column + 1], weights, value[2], value[3]);
      }
    }
  }

  // Of row lane / 4 + 8 * half, the same in its four lanes; all lanes call.
  FOLIO_DEVICE SoftmaxState state(int half) const {
    float sum = sum_[half];
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    return {max_[half], sum};
  }
  // Dimensions column * 8 + lane % 4 * 2 and the next.
  FOLIO_DEVICE float2 out(int half, int column) const { return {out_[column][half * 2], out_[column][half * 2 + 1]}; }

 private:
  float max_[2];
  float sum_[2];  // of this lane's keys
  float scores_[kKeys / 8][4];
  float out_[kColumns][4];
};

}  // namespace folio::cuda
