// One group of a QuantMatrix in a lane's registers: loads first, so that those of several groups are in flight
// together, then the integers as bytes for dot_4x8().
#pragma once
#include "engine/kernels/cuda/device.h"
#include "engine/kernels/cuda/quant_matrix.h"

namespace folio::cuda {

// quant_shape() as constants for device code.
template <TensorType kType>
struct QuantTraits {
  static constexpr int kBits = quant_shape(kType).bits;
  static constexpr bool kHasMin = quant_shape(kType).has_min;
  static constexpr bool kHasSupers = quant_shape(kType).has_supers;
  static constexpr std::size_t kScaleBytes = quant_shape(kType).scale_bytes();
  static constexpr std::size_t kSuperBytes = quant_shape(kType).super_bytes();
  // Integers stand this many bits up in their bytes: two's complement has its sign in the uppermost.
  static constexpr int kShift = kHasMin ? 0 : 8 - kBits;
};

// As the planes have it.
template <TensorType kType>
struct PackedGroup {
  uint4 low;
  uint4 high;  // what the format has of it: 4, 8 or 16 bytes
  std::uint32_t scales;
  std::uint32_t super;
};

template <TensorType kType>
FOLIO_DEVICE PackedGroup<kType> load_group(const QuantMatrix& matrix, std::size_t group) {
  using Traits = QuantTraits<kType>;
  PackedGroup<kType> packed{};
  packed.low = load_16_once(matrix.low + group * 16);
  if constexpr (Traits::kBits == 8) packed.high = load_16_once(matrix.high + group * 16);
  if constexpr (Traits::kBits == 5) packed.high.x = reinterpret_cast<const std::uint32_t*>(matrix.high)[group];
  if constexpr (Traits::kBits == 6) {
    const uint2 upper = reinterpret_cast<const uint2*>(matrix.high)[group];
    packed.high.x = upper.x;
    packed.high.y = upper.y;
  }
  if constexpr (Traits::kScaleBytes == 4) {
    packed.scales = reinterpret_cast<const std::uint32_t*>(matrix.scales)[group];
  } else {
    packed.scales = reinterpret_cast<const std::uint16_t*>(matrix.scales)[group];
  }
  const std::size_t super = group / kSuperGroups;
  if constexpr (Traits::kSuperBytes == 4) {
    packed.super = reinterpret_cast<const std::uint32_t*>(matrix.supers)[super];
  } else if constexpr (Traits::kSuperBytes == 2) {
    packed.super = reinterpret_cast<const std::uint16_t*>(matrix.supers)[super];
  }
  return packed;
}

FOLIO_DEVICE std::uint32_t shift_left(std::uint32_t word, int by) {
  return by >= 0 ? word << by : word >> -by;
}

// words[w]: the values 4w .. 4w + 3, as signed bytes: integer * 2^kShift.
template <TensorType kType>
FOLIO_DEVICE void unpack_integers(const PackedGroup<kType>& packed, std::uint32_t (&words)[8]) {
  constexpr int kBits = QuantTraits<kType>::kBits;
  constexpr int kShift = QuantTraits<kType>::kShift;
  const std::uint32_t low[4] = {packed.low.x, packed.low.y, packed.low.z, packed.low.w};
  const std::uint32_t high[4] = {packed.high.x, packed.high.y, packed.high.z, packed.high.w};
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    if constexpr (kBits == 8) {
      words[w] = low[w];
      words[w + 4] = high[w];
    } else {
      constexpr std::uint32_t kNibbles = 0x0F0F0F0FU << kShift;
      words[w] = shift_left(low[w], kShift) & kNibbles;
      words[w + 4] = shift_left(low[w], kShift - 4) & kNibbles;
    }
    if constexpr (kBits == 5) {
      constexpr std::uint32_t kFifth = 0x10101010U << kShift;
      words[w] |= shift_left(high[0], kShift + 4 - w) & kFifth;
      words[w + 4] |= shift_left(high[0], kShift - w) & kFifth;
    }
    if constexpr (kBits == 6) {
      constexpr std::uint32_t kUpper = 0x30303030U << kShift;
      words[w] |= shift_left(high[0], kShift + 4 - 2 * w) & kUpper;
      words[w + 4] |= shift_left(high[1], kShift + 4 - 2 * w) & kUpper;
    }
  }
}

// value = scale * integer + min; `second` is the scale of the values 16 .. 31.
struct GroupScales {
  float scale;
  float second;
  float min;
};

FOLIO_DEVICE float half_of(std::uint32_t bits) {
  return __half2float(__ushort_as_half(static_cast<unsigned short>(bits & 0xFFFFU)));
}

// The file's own numbers, multiplied in the order of dequantize().
template <TensorType kType>
FOLIO_DEVICE GroupScales unpack_scales(const PackedGroup<kType>& packed) {
  using Traits = QuantTraits<kType>;
  GroupScales by{};
  if constexpr (!Traits::kHasSupers) {
    by.scale = half_of(packed.scales);
    if constexpr (Traits::kHasMin) by.min = half_of(packed.scales >> 16U);
    by.second = by.scale;
  } else if constexpr (Traits::kHasMin) {
    by.scale = half_of(packed.super) * static_cast<float>(packed.scales & 0xFFU);
    by.min = -(half_of(packed.super >> 16U) * static_cast<float>(packed.scales >> 8U));
    by.second = by.scale;
  } else {
    by.scale = half_of(packed.super) * static_cast<float>(static_cast<std::int8_t>(packed.scales & 0xFFU));
    by.second = half_of(packed.super) * static_cast<float>(static_cast<std::int8_t>(packed.scales >> 8U));
  }
  return by;
}

}  // namespace folio::cuda
