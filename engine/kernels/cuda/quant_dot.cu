#include "engine/kernels/cuda/quant_dot.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "engine/kernels/cuda/quant_group.h"

namespace folio::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarpSize;
constexpr int kColumns = 4;  // of a warp: it has the 16-byte loads of so many columns in flight

struct Part {
  QuantProduct product;
  std::int32_t first_cta = std::numeric_limits<std::int32_t>::max();
};

struct QuantDots {
  QuantRows x;
  std::int32_t rows = 0;
  std::int32_t column_warps = 1;  // that share a column: 1, 2, 4
  Part parts[kMaxQuantDotProducts];
};

// Where a warp works: kColumns columns of one matrix, and every `stride`-th group from its lane's first.
struct Place {
  int first_column;
  int first_group;
  int stride;
};

FOLIO_DEVICE int at_most(int value, int limit) {
  return value < limit ? value : limit;
}

template <TensorType kType>
FOLIO_DEVICE float add_group(const std::uint32_t (&weights)[8], const GroupScales& by, const uint4& first,
                             const uint4& second, float2 row, float sum) {
  int dot = dot_4x8(weights[0], first.x, 0);
  dot = dot_4x8(weights[1], first.y, dot);
  dot = dot_4x8(weights[2], first.z, dot);
  dot = dot_4x8(weights[3], first.w, dot);
  if constexpr (kType == TensorType::kQ6_K) {
    sum = fmaf(static_cast<float>(dot), by.scale * row.x, sum);
    dot = 0;
  }
  dot = dot_4x8(weights[4], second.x, dot);
  dot = dot_4x8(weights[5], second.y, dot);
  dot = dot_4x8(weights[6], second.z, dot);
  dot = dot_4x8(weights[7], second.w, dot);
  sum = fmaf(static_cast<float>(dot), by.second * row.x, sum);
  if constexpr (QuantTraits<kType>::kHasMin) sum = fmaf(by.min, row.y, sum);
  return sum;
}

// sums[r * kColumns + c]: this lane's groups. Rows and columns past the last repeat it.
template <TensorType kType, int kRows>
FOLIO_DEVICE void add_lane(const QuantDots& work, const QuantMatrix& matrix, Place place,
                           float (&sums)[kRows * kColumns]) {
  const int groups = work.x.depth / kQuantGroup;
  for (int g = place.first_group; g < groups; g += place.stride) {
    PackedGroup<kType> packed[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int column = at_most(place.first_column + c, matrix.columns - 1);
      packed[c] = load_group<kType>(matrix, static_cast<std::size_t>(column) * groups + g);
    }
    std::uint32_t weights[kColumns][8];
    GroupScales by[kColumns];
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      unpack_integers(packed[c], weights[c]);
      by[c] = unpack_scales(packed[c]);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const std::size_t group = static_cast<std::size_t>(at_most(r, work.rows - 1)) * groups + g;
      const uint4 first = load_16(work.x.values + group * kQuantGroup);
      const uint4 second = load_16(work.x.values + group * kQuantGroup + 16);
      const float2 row = work.x.groups[group];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float& sum = sums[r * kColumns + c];
        sum = add_group<kType>(weights[c], by[c], first, second, row, sum);
      }
    }
  }
  constexpr float kUnit = 1.0F / static_cast<float>(1 << QuantTraits<kType>::kShift);
#pragma unroll
  for (int i = 0; i < kRows * kColumns; ++i) sums[i] *= kUnit;  // exact
}

template <int kRows>
FOLIO_DEVICE void add_lane(const QuantDots& work, const QuantMatrix& matrix, Place place,
                           float (&sums)[kRows * kColumns]) {
  switch (matrix.type) {
    case TensorType::kQ4_0:
      return add_lane<TensorType::kQ4_0, kRows>(work, matrix, place, sums);
    case TensorType::kQ4_1:
      return add_lane<TensorType::kQ4_1, kRows>(work, matrix, place, sums);
    case TensorType::kQ4_K:
      return add_lane<TensorType::kQ4_K, kRows>(work, matrix, place, sums);
    case TensorType::kQ5_0:
      return add_lane<TensorType::kQ5_0, kRows>(work, matrix, place, sums);
    case TensorType::kQ5_1:
      return add_lane<TensorType::kQ5_1, kRows>(work, matrix, place, sums);
    case TensorType::kQ5_K:
      return add_lane<TensorType::kQ5_K, kRows>(work, matrix, place, sums);
    case TensorType::kQ6_K:
      return add_lane<TensorType::kQ6_K, kRows>(work, matrix, place, sums);
    default:
      return add_lane<TensorType::kQ8_0, kRows>(work, matrix, place, sums);
  }
}

// The sum of values[i] over the lanes, for i = lane / (32 / kCount): at each distance a lane gives away the half of the
// values that it will not hold, so that all are summed in one tree and few shuffles.
template <int kCount, int kDistance = kWarpSize / 2>
FOLIO_DEVICE float sum_lanes(const float (&values)[kCount], int lane) {
  if constexpr (kDistance == 0) {
    return values[0];
  } else if constexpr (kCount == 1) {
    const float pair[1] = {values[0] + shuffle_xor(values[0], kDistance)};
    return sum_lanes<1, kDistance / 2>(pair, lane);
  } else {
    const bool upper = (lane & kDistance) != 0;
    float pairs[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float given = upper ? values[i] : values[i + kCount / 2];
      const float kept = upper ? values[i + kCount / 2] : values[i];
      pairs[i] = kept + shuffle_xor(given, kDistance);
    }
    return sum_lanes<kCount / 2, kDistance / 2>(pairs, lane);
  }
}

FOLIO_DEVICE const Part& part_of(const QuantDots& work, int cta) {
  int p = static_cast<int>(kMaxQuantDotProducts) - 1;
  while (cta < work.parts[p].first_cta) --p;
  return work.parts[p];
}

// A CTA computes kColumns columns for each `column_warps` of its warps.
template <int kRows>
FOLIO_KERNEL(kThreads)
quant_dot_kernel(QuantDots work) {
  constexpr int kCount = kRows * kColumns;
  constexpr int kLanesOfValue = kWarpSize / kCount;
  const auto thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int lane = thread % kWarpSize;
  const int cta = static_cast<int>(blockIdx.x);
  const Part& part = part_of(work, cta);
  const QuantProduct& product = part.product;
  const int first_set = (cta - part.first_cta) * (kWarps / work.column_warps);  // of kColumns columns
  SharedArena shared;
  float* partial = shared.take<float>(kWarps * kCount);  // [warp][row][column]

  const Place place = {(first_set + warp / work.column_warps) * kColumns, warp % work.column_warps * kWarpSize + lane,
                       work.column_warps * kWarpSize};
  float sums[kCount] = {};
  add_lane<kRows>(work, product.matrix, place, sums);
  const float sum = sum_lanes(sums, lane);
  if (lane % kLanesOfValue == 0) partial[warp * kCount + lane / kLanesOfValue] = sum;
  sync_cta();

  const int set = thread / kCount;
  const int row = thread % kCount / kColumns;
  const int column = (first_set + set) * kColumns + thread % kColumns;
  if (set * work.column_warps < kWarps && row < work.rows && column < product.matrix.columns) {
    const float* from = partial + set * work.column_warps * kCount + thread % kCount;
    float value = from[0];
    for (int w = 1; w < work.column_warps; ++w) value += from[w * kCount];
    if (product.bias != nullptr) value += product.bias[column];
    float* to = product.out + row * product.out_stride + column;
    *to = product.add ? *to + value : value;
  }
}

// As many warps to a column as have groups in it.
std::int32_t column_warps(std::int32_t depth) {
  const std::int32_t groups = depth / kQuantGroup;
  return groups <= kWarpSize ? 1 : groups <= 2 * kWarpSize ? 2 : 4;
}

}  // namespace

void quant_dot(const QuantRows& x, std::int32_t rows, std::span<const QuantProduct> products, cudaStream_t stream) {
  FOLIO_CHECK(rows >= 1 && rows <= kMaxQuantDotRows, "the rows of a fused product");
  FOLIO_CHECK(!products.empty() && products.size() <= kMaxQuantDotProducts, "products that share a launch");
  QuantDots work{x, rows, column_warps(x.depth), {}};
  const std::int32_t cta_columns = kColumns * kWarps / work.column_warps;
  std::int32_t ctas = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const QuantMatrix& matrix = products[i].matrix;
    FOLIO_CHECK(matrix.depth == x.depth && has_quant_form(matrix.type), "a quantised matrix that fits its input");
    work.parts[i] = {products[i], ctas};
    ctas += (matrix.columns + cta_columns - 1) / cta_columns;
  }
  const auto start = [&](void (*kernel)(QuantDots), std::size_t variant_rows) {
    const std::size_t shared_bytes = sizeof(float) * kWarps * kColumns * variant_rows;
    launch("quantised product", kernel, {dim3(static_cast<unsigned>(ctas)), kThreads, shared_bytes, stream}, work);
  };
  if (rows == 1) {
    start(quant_dot_kernel<1>, 1);
  } else if (rows == 2) {
    start(quant_dot_kernel<2>, 2);
  } else if (rows <= 4) {
    start(quant_dot_kernel<4>, 4);
  } else {
    start(quant_dot_kernel<8>, 8);
  }
}

}  // namespace folio::cuda
