#include "engine/gguf/unpack_quants.h"

#include <cstring>

#include "base/check.h"

namespace folio {
namespace {

using Byte = std::uint8_t;

float half_at(const Byte* p) {
  std::uint16_t bits;
  std::memcpy(&bits, p, 2);
  return half_to_float(bits);
}

// 16 bytes hold elements 0..15 in the low and 16..31 in the high nibbles.
void nibbles(const Byte* qs, Byte* out) {
  for (int i = 0; i < 16; ++i) {
    out[i] = qs[i] & 15U;
    out[i + 16] = static_cast<Byte>(qs[i] >> 4U);
  }
}

void fifth_bits(const Byte* qh, Byte* out) {
  std::uint32_t bits;
  std::memcpy(&bits, qh, 4);
  for (unsigned i = 0; i < 32; ++i) out[i] = static_cast<Byte>(out[i] | (bits >> i & 1U) << 4U);
}

void k4_scales(const Byte* block, float* scales, float* minima) {
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = scale_min_k4(block + 4, j);
    scales[j] = d * static_cast<float>(sm.scale);
    minima[j] = -(dmin * static_cast<float>(sm.min));
  }
}

void unpack_q4_k(const Byte* block, Byte* q, float* scales, float* minima) {
  k4_scales(block, scales, minima);
  const Byte* qs = block + 16;
  for (int j = 0; j < 4; ++j, qs += 32, q += 64) {
    for (int i = 0; i < 32; ++i) {
      q[i] = qs[i] & 15U;
      q[i + 32] = static_cast<Byte>(qs[i] >> 4U);
    }
  }
}

void unpack_q5_k(const Byte* block, Byte* q, float* scales, float* minima) {
  k4_scales(block, scales, minima);
  const Byte* qh = block + 16;
  const Byte* qs = block + 48;
  for (unsigned j = 0; j < 4; ++j, qs += 32, q += 64) {
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<Byte>((qs[i] & 15U) | (qh[i] >> 2U * j & 1U) << 4U);
      q[i + 32] = static_cast<Byte>(qs[i] >> 4U | (qh[i] >> (2U * j + 1U) & 1U) << 4U);
    }
  }
}

void unpack_q6_k(const Byte* block, Byte* q, float* scales) {
  const Byte* ql = block;
  const Byte* qh = block + 128;
  const float d = half_at(block + 208);
  for (int j = 0; j < 16; ++j) scales[j] = d * static_cast<float>(static_cast<std::int8_t>(block[192 + j]));
  for (int half = 0; half < 2; ++half, ql += 64, qh += 32, q += 128) {
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<Byte>((ql[i] & 15U) | (qh[i] & 3U) << 4U);
      q[i + 32] = static_cast<Byte>((ql[i + 32] & 15U) | (qh[i] >> 2U & 3U) << 4U);
      q[i + 64] = static_cast<Byte>(ql[i] >> 4U | (qh[i] >> 4U & 3U) << 4U);
      q[i + 96] = static_cast<Byte>(ql[i + 32] >> 4U | static_cast<unsigned>(qh[i] >> 6U) << 4U);
    }
  }
}

void unpack_q8_0(const Byte* block, Byte* q, float* scale) {
  *scale = half_at(block);
  for (int i = 0; i < 32; ++i) q[i] = block[2 + i] ^ 0x80U;  // signed to unsigned: + 128
}

}  // namespace

ScaleMin scale_min_k4(const Byte* packed, int j) {
  const auto at = [packed](int i) { return static_cast<unsigned>(packed[i]); };
  const auto bytes = [](unsigned scale, unsigned min) {
    return ScaleMin{static_cast<Byte>(scale), static_cast<Byte>(min)};
  };
  if (j < 4) return bytes(at(j) & 63U, at(j + 4) & 63U);
  return bytes((at(j + 4) & 15U) | (at(j - 4) >> 6U) << 4U, at(j + 4) >> 4U | (at(j) >> 6U) << 4U);
}

void unpack_quant_row(TensorType type, std::span<const std::byte> row, std::span<std::uint8_t> quants,
                      std::span<float> scales, std::span<float> minima) {
  const TensorTypeInfo& info = tensor_type_info(type);
  const std::size_t num_blocks = quants.size() / info.block_elements;
  FOLIO_CHECK(row.size() == num_blocks * info.block_bytes, "a row's bytes do not fit its length");
  const auto* block = reinterpret_cast<const Byte*>(row.data());
  Byte* q = quants.data();
  float* scale = scales.data();
  float* min = minima.data();
  for (std::size_t b = 0; b < num_blocks; ++b, block += info.block_bytes, q += info.block_elements) {
    switch (type) {
      case TensorType::kQ4_0:
      case TensorType::kQ4_1: {
        const bool has_min = type == TensorType::kQ4_1;
        *scale++ = half_at(block);
        if (has_min) *min++ = half_at(block + 2);
        nibbles(block + (has_min ? 4 : 2), q);
        break;
      }
      case TensorType::kQ5_0:
      case TensorType::kQ5_1: {
        const bool has_min = type == TensorType::kQ5_1;
        *scale++ = half_at(block);
        if (has_min) *min++ = half_at(block + 2);
        nibbles(block + (has_min ? 8 : 6), q);
        fifth_bits(block + (has_min ? 4 : 2), q);
        break;
      }
      case TensorType::kQ8_0:
        unpack_q8_0(block, q, scale++);
        break;
      case TensorType::kQ4_K:
        unpack_q4_k(block, q, scale, min);
        scale += 8;
        min += 8;
        break;
      case TensorType::kQ5_K:
        unpack_q5_k(block, q, scale, min);
        scale += 8;
        min += 8;
        break;
      case TensorType::kQ6_K:
        unpack_q6_k(block, q, scale);
        scale += 16;
        break;
      default:
        FOLIO_CHECK(false, "not an integer format");
    }
  }
}

}  // namespace folio
