// Block layouts, bytes in file order. d, m: float16. q: low nibbles of the bytes are the first half of the elements,
// high nibbles the second.
//   Q4_0  d, 16 q                         (q - 8) d
//   Q4_1  d, m, 16 q                      q d + m
//   Q5_0  d, 32 fifth bits, 16 q          (q - 16) d
//   Q5_1  d, m, 32 fifth bits, 16 q       q d + m
//   Q8_0  d, 32 int8                      q d
//   Q4_K  d, m, 12 scale bytes, 128 q     q (d s) - m t, eight groups of 32 with 6-bit s and t
//   Q5_K  d, m, 12 scale bytes, 32 bytes of fifth bits (bit g is group g's), 128 q     as Q4_K
//   Q6_K  128 low nibbles, 64 bytes of bits 4 and 5, 16 int8 scales, d                 (q - 32) (d s), groups of 16
#include <bit>
#include <cstring>

#include "base/check.h"
#include "engine/gguf/tensor_type.h"

namespace folio {
namespace {

using Bytes = const std::uint8_t*;

template <class T>
T load(Bytes from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float load_half(Bytes from) {
  return half_to_float(load<std::uint16_t>(from));
}

int low(std::uint8_t byte) {
  return byte & 15;
}
int high(std::uint8_t byte) {
  return byte >> 4;
}

void block_q4_0(Bytes in, float* out) {
  const float d = load_half(in);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(low(in[2 + j]) - 8) * d;
    out[j + 16] = static_cast<float>(high(in[2 + j]) - 8) * d;
  }
}

void block_q4_1(Bytes in, float* out) {
  const float d = load_half(in);
  const float m = load_half(in + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(low(in[4 + j])) * d + m;
    out[j + 16] = static_cast<float>(high(in[4 + j])) * d + m;
  }
}

int fifth(std::uint32_t bits, int element) {
  return static_cast<int>((bits >> element) & 1U) << 4;
}

void block_q5_0(Bytes in, float* out) {
  const float d = load_half(in);
  const auto bits = load<std::uint32_t>(in + 2);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>((low(in[6 + j]) | fifth(bits, j)) - 16) * d;
    out[j + 16] = static_cast<float>((high(in[6 + j]) | fifth(bits, j + 16)) - 16) * d;
  }
}

void block_q5_1(Bytes in, float* out) {
  const float d = load_half(in);
  const float m = load_half(in + 2);
  const auto bits = load<std::uint32_t>(in + 4);
  for (int j = 0; j < 16; ++j) {
    out[j] = static_cast<float>(low(in[8 + j]) | fifth(bits, j)) * d + m;
    out[j + 16] = static_cast<float>(high(in[8 + j]) | fifth(bits, j + 16)) * d + m;
  }
}

void block_q8_0(Bytes in, float* out) {
  const float d = load_half(in);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(static_cast<std::int8_t>(in[2 + j])) * d;
}

struct GroupScale {
  int scale;
  int minimum;
};

// Eight pairs of 6 bits in 12 bytes: the first four pairs whole in bytes 0-7, whose two top bits are those of the last
// four; these have their four low bits in bytes 8-11.
GroupScale group_scale(Bytes packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {low(packed[group + 4]) | (packed[group - 4] >> 6 << 4), high(packed[group + 4]) | (packed[group] >> 6 << 4)};
}

// `fifth_bits` is null for Q4_K.
void block_q45_k(Bytes in, Bytes fifth_bits, Bytes nibbles, float* out) {
  const float d = load_half(in);
  const float m = load_half(in + 2);
  for (int group = 0; group < 8; ++group) {
    const GroupScale by = group_scale(in + 4, group);
    const float scale = d * static_cast<float>(by.scale);
    const float minimum = m * static_cast<float>(by.minimum);
    for (int j = 0; j < 32; ++j) {
      const std::uint8_t byte = nibbles[group / 2 * 32 + j];
      int q = group % 2 == 0 ? low(byte) : high(byte);
      if (fifth_bits != nullptr) q |= ((fifth_bits[j] >> group) & 1) << 4;
      out[group * 32 + j] = scale * static_cast<float>(q) - minimum;
    }
  }
}

void block_q4_k(Bytes in, float* out) {
  block_q45_k(in, nullptr, in + 16, out);
}
void block_q5_k(Bytes in, float* out) {
  block_q45_k(in, in + 16, in + 48, out);
}

void block_q6_k(Bytes in, float* out) {
  const float d = load_half(in + 208);
  for (int i = 0; i < 256; ++i) {
    // Each half of 128 elements has four quarters of 32 that share bytes: quarters 0 and 1 take the low nibbles of the
    // half's 64 bytes, 2 and 3 the high ones, and quarter q has bits 2q and 2q + 1 of the 32 bytes of upper bits.
    const int half = i / 128;
    const int quarter = i % 128 / 32;
    const std::uint8_t nibbles = in[half * 64 + quarter % 2 * 32 + i % 32];
    const int upper = in[128 + half * 32 + i % 32] >> (2 * quarter) & 3;
    const int q = ((quarter < 2 ? low(nibbles) : high(nibbles)) | upper << 4) - 32;
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(in[192 + i / 16])) * static_cast<float>(q);
  }
}

void value_f32(Bytes in, float* out) {
  *out = load<float>(in);
}
void value_f16(Bytes in, float* out) {
  *out = load_half(in);
}
void value_bf16(Bytes in, float* out) {
  *out = bfloat16_to_float(load<std::uint16_t>(in));
}

using BlockFn = void (*)(Bytes, float*);

BlockFn block_fn(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return value_f32;
    case TensorType::kF16:
      return value_f16;
    case TensorType::kBF16:
      return value_bf16;
    case TensorType::kQ4_0:
      return block_q4_0;
    case TensorType::kQ4_1:
      return block_q4_1;
    case TensorType::kQ5_0:
      return block_q5_0;
    case TensorType::kQ5_1:
      return block_q5_1;
    case TensorType::kQ8_0:
      return block_q8_0;
    case TensorType::kQ4_K:
      return block_q4_k;
    case TensorType::kQ5_K:
      return block_q5_k;
    case TensorType::kQ6_K:
      return block_q6_k;
  }
  return nullptr;
}

}  // namespace

void dequantize(TensorType type, std::span<const std::byte> data, std::span<float> out) {
  const TensorTypeInfo& info = tensor_type_info(type);
  const std::size_t blocks = out.size() / info.block_elements;
  FOLIO_CHECK(out.size() % info.block_elements == 0, "only whole blocks are dequantised");
  FOLIO_CHECK(data.size() / info.block_bytes >= blocks, "the data holds the blocks that are asked");
  const auto* in = reinterpret_cast<Bytes>(data.data());
  const BlockFn block = block_fn(type);
  for (std::size_t i = 0; i < blocks; ++i) block(in + i * info.block_bytes, out.data() + i * info.block_elements);
}

float half_to_float(std::uint16_t h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000U) << 16;
  const std::uint32_t exponent = (h >> 10) & 31U;
  const std::uint32_t fraction = h & 0x3FFU;
  if (exponent == 0) {  // zero and subnormal: fraction * 2^-24, a normal float
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t rebiased = exponent == 31 ? 255U : exponent + 112U;  // infinity and NaN keep all ones
  return std::bit_cast<float>(sign | (rebiased << 23) | (fraction << 13));
}

std::uint16_t float_to_half(float f) {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFF'FFFFU;
  std::uint32_t half = 0;
  if (magnitude > 0x7F80'0000U) {
    half = 0x7E00U | (magnitude >> 13 & 0x3FFU);  // NaN, made quiet
  } else if (magnitude >= 0x477F'F000U) {
    half = 0x7C00U;  // from 65520 on: infinity
  } else if (magnitude < 0x3880'0000U) {
    // Below 2^-14 halves are multiples of 2^-24, which is what a float of [0.5, 1) has as its last place.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F00'0000U;
  } else {
    const std::uint32_t odd = magnitude >> 13 & 1U;
    half = (magnitude - (112U << 23) + 0xFFFU + odd) >> 13;
  }
  return static_cast<std::uint16_t>(sign | half);
}

}  // namespace folio
