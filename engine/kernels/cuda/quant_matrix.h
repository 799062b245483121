// What quant_dot.h multiplies: activations as int8 rows, and a GGUF matrix of an integer format as planes from which
// neighbouring lanes read neighbouring 16 bytes. Nothing here calls the device.
//
// A group is 32 values of a column along the depth: one lane's share. A plane holds a fixed number of bytes of every
// group, [columns][depth / 32]:
//   low     16 bytes: the low nibbles of values i and i + 16 in byte i; 8 bits: values 0 .. 15
//   high    5 bits: 4 bytes, bit w of byte b is the fifth bit of value 4w + b
//           6 bits: 8 bytes, bits 2w, 2w + 1 of byte b (of b + 4) are the upper two bits of value 4w + b (of 16 more)
//           8 bits: 16 bytes, values 16 .. 31
//   scales  half scale; with a minimum {half scale, half minimum}
//           K-quants: {uint8 scale, uint8 minimum}; Q6_K: {int8 scale of values 0 .. 15, of 16 .. 31}
//   supers  K-quants only, [columns][depth / 256]: half factor of the scales; with a minimum {half, half of the minima}
// All numbers are the file's own, so that a matrix takes the file's size (K-quants with a minimum 2.8 % more). Formats
// without a minimum have their integers with the uppermost bit flipped: two's complement, value = scale * integer.
#pragma once
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "engine/gguf/gguf_file.h"

namespace folio::cuda {

inline constexpr int kQuantGroup = 32;  // values that share a scale, in activations too
inline constexpr int kSuperGroups = 8;  // groups that share a K-quant's factor

// Rows of activations, value = scale * int8. A row is quantised by itself, as the CPU does it: scale = largest
// magnitude of the group / 127, int8 = nearest of value * (127 / largest); below 1e-30 all is zero.
// On the device; `values` begins at a multiple of 16 bytes.
struct QuantRows {
  std::int8_t* values = nullptr;  // [rows][depth]
  float2* groups = nullptr;       // [rows][depth / 32] {scale, scale * the sum of the group's int8}
  std::int32_t depth = 0;         // a multiple of 32
};

struct QuantShape {
  int bits = 0;  // of an integer: 4, 5, 6, 8; 0: not an integer format
  bool has_min = false;
  bool has_supers = false;

  constexpr std::size_t high_bytes() const { return bits == 8 ? 16 : static_cast<std::size_t>(bits - 4) * 4; }
  constexpr std::size_t scale_bytes() const { return has_min && !has_supers ? 4 : 2; }
  constexpr std::size_t super_bytes() const { return !has_supers ? 0 : has_min ? 4 : 2; }
};

constexpr QuantShape quant_shape(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return {4, false, false};
    case TensorType::kQ4_1:
      return {4, true, false};
    case TensorType::kQ4_K:
      return {4, true, true};
    case TensorType::kQ5_0:
      return {5, false, false};
    case TensorType::kQ5_1:
      return {5, true, false};
    case TensorType::kQ5_K:
      return {5, true, true};
    case TensorType::kQ6_K:
      return {6, false, true};
    case TensorType::kQ8_0:
      return {8, false, false};
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      return {};
  }
  return {};
}
// F32, F16 and BF16 have no such form: their products run on bf16_rows().
constexpr bool has_quant_form(TensorType type) {
  return quant_shape(type).bits != 0;
}

// A matrix in this form: where its planes are, in memory of the device or of the host.
struct QuantMatrix {
  TensorType type = TensorType::kQ4_0;
  std::int32_t depth = 0;  // a multiple of 32
  std::int32_t columns = 0;
  const std::uint8_t* low = nullptr;
  const std::uint8_t* high = nullptr;
  const std::uint8_t* scales = nullptr;
  const std::uint8_t* supers = nullptr;
};

// The size of the form. Every plane begins at a multiple of 256 bytes.
std::size_t quant_matrix_bytes(TensorType type, std::int32_t depth, std::int32_t columns);
// `data`: that many bytes, at a multiple of 256.
QuantMatrix quant_matrix(TensorType type, std::int32_t depth, std::int32_t columns, const void* data);
// Fills `out`, of quant_matrix_bytes(), from a matrix (1 or 2 dimensions) that has_quant_form(). What lies between the
// planes is zero.
void pack_quant_matrix(const GgufTensor& tensor, ThreadPool& pool, std::span<std::byte> out);

// F32, F16 or BF16 to the nearest bf16, ties to even: out [columns][depth]. Integer formats: bf16_weights.h.
void bf16_rows(const GgufTensor& tensor, ThreadPool& pool, std::span<std::uint16_t> out);

}  // namespace folio::cuda
