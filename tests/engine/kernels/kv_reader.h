// The plain reading of the KV cache: one element at a time in double, by the table of engine/kernels/kv_cache.h.
#pragma once
#include <cstring>

#include "engine/gguf/tensor_type.h"
#include "engine/kernels/kv_cache.h"

namespace folio::cpu {

template <class T>
T read_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// Element `index` of a group; int8: times the scale of `lane`.
inline double read_element(KvType type, const std::byte* group, std::size_t index, int bias, std::size_t scales_at,
                           int lane) {
  switch (type) {
    case KvType::kF32:
      return static_cast<double>(read_as<float>(group + 4 * index));
    case KvType::kF16:
      return static_cast<double>(half_to_float(read_as<std::uint16_t>(group + 2 * index)));
    case KvType::kBF16:
      return static_cast<double>(
          __builtin_bit_cast(float, static_cast<std::uint32_t>(read_as<std::uint16_t>(group + 2 * index)) << 16U));
    default: {
      const auto byte = std::to_integer<int>(group[index]);
      const int q = bias != 0 ? byte - bias : byte >= 128 ? byte - 256 : byte;
      return q * static_cast<double>(read_as<float>(group + scales_at + 4 * static_cast<std::size_t>(lane)));
    }
  }
}

inline double cached_key(const KvCache& cache, int layer, BlockId block, int head, int slot, int dim) {
  const KvCacheLayout& l = cache.layout();
  const int lane = slot % 16;
  const int pack = l.type == KvType::kInt8 ? 4 : l.type == KvType::kBF16 ? 2 : 1;
  const std::byte* group = cache.data() + l.key_group_offset(layer, block, head, slot / 16);
  const int index = dim / pack * 16 * pack + lane * pack + dim % pack;  // [dim/pack][16][pack]
  return read_element(l.type, group, static_cast<std::size_t>(index), 128, l.key_scales_at(), lane);
}

inline double cached_value(const KvCache& cache, int layer, BlockId block, int head, int slot, int dim) {
  const KvCacheLayout& l = cache.layout();
  const int lane = slot % 16;
  const int pack = l.type == KvType::kInt8 ? 4 : l.type == KvType::kBF16 ? 2 : 1;
  const std::byte* group = cache.data() + l.value_group_offset(layer, block, head, slot / 16);
  const int index = lane / pack * l.padded_dim() * pack + dim * pack + lane % pack;  // [16/pack][dim][pack]
  return read_element(l.type, group, static_cast<std::size_t>(index), 0, l.value_scales_at(), lane);
}

inline const char* name_of(KvType type) {
  return type == KvType::kF16 ? "f16" : type == KvType::kF32 ? "f32" : type == KvType::kBF16 ? "bf16" : "int8";
}

inline constexpr KvType kAllKvTypes[] = {KvType::kF32, KvType::kF16, KvType::kBF16, KvType::kInt8};

}  // namespace folio::cpu
