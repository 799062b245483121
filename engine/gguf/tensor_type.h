// The tensor formats of a GGUF file that folio reads, and their plain dequantisation (the reference for every kernel).
// Source: the format notes and block layouts published with ggml (docs/gguf.md, ggml-common.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace folio {

// Values are the file's own ids.
enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kBF16 = 30,
};

struct TensorTypeInfo {
  TensorType type;
  const char* name;              // "Q4_1"
  std::uint32_t block_elements;  // row lengths are a multiple of it
  std::uint32_t block_bytes;
};

// Null for an id that folio does not read.
const TensorTypeInfo* find_tensor_type(std::uint32_t id);
// The name of any id the format knows, else "unknown": for refusals.
std::string_view tensor_type_name(std::uint32_t id);
const TensorTypeInfo& tensor_type_info(TensorType type);

// out.size() values from the start of `data`; out.size() is a multiple of block_elements and data is long enough
// (checked).
void dequantize(TensorType type, std::span<const std::byte> data, std::span<float> out);

float half_to_float(std::uint16_t h);  // exact, all bit patterns
std::uint16_t float_to_half(float f);  // round to nearest even
inline float bfloat16_to_float(std::uint16_t h) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(h) << 16);
}

}  // namespace folio
