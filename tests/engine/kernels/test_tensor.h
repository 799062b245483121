// Tensors of every format with random contents, for tests of the matmul.
#pragma once
#include <cstring>
#include <random>
#include <vector>

#include "engine/gguf/gguf_file.h"
#include "engine/gguf/tensor_type.h"

namespace folio::cpu {

inline constexpr TensorType kTypes[] = {TensorType::kF32,  TensorType::kF16,  TensorType::kBF16, TensorType::kQ4_0,
                                        TensorType::kQ4_1, TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ8_0,
                                        TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K};

struct TestTensor {
  std::vector<std::byte> data;
  std::vector<float> values;  // [columns][depth]
  GgufTensor tensor;
};

inline void put_half(std::vector<std::byte>& data, std::size_t at, float value) {
  const std::uint16_t bits = float_to_half(value);
  std::memcpy(data.data() + at, &bits, 2);
}

// Random bits in every field, but scales that are sane numbers.
inline TestTensor make_tensor(TensorType type, std::int32_t depth, std::int32_t columns, std::mt19937& random) {
  const TensorTypeInfo& info = tensor_type_info(type);
  TestTensor t;
  const std::size_t count = static_cast<std::size_t>(depth) * static_cast<std::size_t>(columns);
  t.data.resize(count / info.block_elements * info.block_bytes);
  for (auto& b : t.data) b = static_cast<std::byte>(random());
  std::normal_distribution<float> normal;
  for (std::size_t at = 0; at < t.data.size(); at += info.block_bytes) {
    switch (type) {
      case TensorType::kF32: {
        const float v = normal(random);
        std::memcpy(t.data.data() + at, &v, 4);
        break;
      }
      case TensorType::kF16:
        put_half(t.data, at, normal(random));
        break;
      case TensorType::kBF16: {
        const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, normal(random));
        const auto top = static_cast<std::uint16_t>(bits >> 16U);
        std::memcpy(t.data.data() + at, &top, 2);
        break;
      }
      case TensorType::kQ6_K:
        put_half(t.data, at + 208, 0.001F * normal(random));
        break;
      case TensorType::kQ4_1:
      case TensorType::kQ5_1:
      case TensorType::kQ4_K:
      case TensorType::kQ5_K:
        put_half(t.data, at + 2, 0.1F * normal(random));
        [[fallthrough]];
      default:
        put_half(t.data, at, 0.1F * normal(random));
    }
  }
  t.values.resize(count);
  dequantize(type, t.data, t.values);
  t.tensor = {"test.weight", type, {static_cast<std::uint64_t>(depth), static_cast<std::uint64_t>(columns)}, t.data};
  return t;
}

}  // namespace folio::cpu
