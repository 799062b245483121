#include "engine/kernels/cuda/quant_matrix.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "engine/gguf/unpack_quants.h"

namespace folio::cuda {
namespace {

constexpr std::size_t kGroup = kQuantGroup;
constexpr std::int64_t kColumnsAtOnce = 16;  // of a worker

struct PlaneStarts {
  std::size_t high, scales, supers, end;
};

PlaneStarts plane_starts(TensorType type, std::int32_t depth, std::int32_t columns) {
  const QuantShape shape = quant_shape(type);
  FOLIO_CHECK(shape.bits != 0 && depth % kQuantGroup == 0, "only integer formats have planes");
  const std::size_t groups = static_cast<std::size_t>(depth / kQuantGroup) * static_cast<std::size_t>(columns);
  const auto after = [](std::size_t start, std::size_t bytes) { return (start + bytes + 255) / 256 * 256; };
  PlaneStarts at{};
  at.high = after(0, groups * 16);
  at.scales = after(at.high, groups * shape.high_bytes());
  at.supers = after(at.scales, groups * shape.scale_bytes());
  at.end = after(at.supers, groups / kSuperGroups * shape.super_bytes());
  return at;
}

// One group's integers into the low and high planes.
void put_group(const std::uint8_t* quants, QuantShape shape, std::uint8_t* low, std::uint8_t* high) {
  std::uint8_t integers[kGroup];
  const unsigned flip = shape.has_min ? 0U : 1U << (shape.bits - 1);
  for (std::size_t i = 0; i < kGroup; ++i) integers[i] = static_cast<std::uint8_t>(quants[i] ^ flip);
  if (shape.bits == 8) {
    std::memcpy(low, integers, 16);
    std::memcpy(high, integers + 16, 16);
    return;
  }
  for (std::size_t i = 0; i < 16; ++i) {
    low[i] = static_cast<std::uint8_t>((integers[i] & 15U) | (integers[i + 16] & 15U) << 4U);
  }
  for (std::size_t i = 0; i < kGroup; ++i) {
    const unsigned upper = integers[i] >> 4U;
    const std::size_t byte = i % 4;
    const auto word = static_cast<unsigned>(i / 4);
    if (shape.bits == 5) high[byte] = static_cast<std::uint8_t>(high[byte] | upper << word);
    if (shape.bits == 6) {
      std::uint8_t& to = high[byte + (word < 4 ? 0 : 4)];
      to = static_cast<std::uint8_t>(to | upper << 2U * (word % 4));
    }
  }
}

// A block's own scales and factors, bit for bit. They stand at its start but in Q6_K.
void put_scales(TensorType type, const std::uint8_t* block, std::uint8_t* scales, std::uint8_t* super) {
  const QuantShape shape = quant_shape(type);
  if (!shape.has_supers) {
    std::memcpy(scales, block, shape.scale_bytes());
  } else if (type == TensorType::kQ6_K) {
    std::memcpy(scales, block + 192, 16);
    std::memcpy(super, block + 208, 2);
  } else {
    for (int j = 0; j < kSuperGroups; ++j) {
      const ScaleMin both = scale_min_k4(block + 4, j);
      *scales++ = both.scale;
      *scales++ = both.min;
    }
    std::memcpy(super, block, 4);
  }
}

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFF'FFFFU) > 0x7F80'0000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);  // NaN, made quiet
  return static_cast<std::uint16_t>((bits + 0x7FFFU + (bits >> 16U & 1U)) >> 16U);
}

}  // namespace

std::size_t quant_matrix_bytes(TensorType type, std::int32_t depth, std::int32_t columns) {
  return plane_starts(type, depth, columns).end;
}

QuantMatrix quant_matrix(TensorType type, std::int32_t depth, std::int32_t columns, const void* data) {
  const PlaneStarts at = plane_starts(type, depth, columns);
  const auto* start = static_cast<const std::uint8_t*>(data);
  return {type, depth, columns, start, start + at.high, start + at.scales, start + at.supers};
}

void pack_quant_matrix(const GgufTensor& tensor, ThreadPool& pool, std::span<std::byte> out) {
  const auto depth = static_cast<std::int32_t>(tensor.row_length());
  const auto columns = static_cast<std::int32_t>(tensor.num_rows());
  const PlaneStarts at = plane_starts(tensor.type, depth, columns);
  FOLIO_CHECK(out.size() == at.end, "the size of the packed matrix");
  std::fill(out.begin(), out.end(), std::byte{0});
  const QuantShape shape = quant_shape(tensor.type);
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  const std::size_t groups = static_cast<std::size_t>(depth) / kGroup;
  const std::size_t block_groups = info.block_elements / kGroup;
  const std::size_t row_bytes = groups / block_groups * info.block_bytes;
  auto* planes = reinterpret_cast<std::uint8_t*>(out.data());
  pool.parallel_for(columns, kColumnsAtOnce, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<std::uint8_t> quants(static_cast<std::size_t>(depth));
    std::vector<float> products(2 * groups);  // scales that were multiplied out: not ours
    for (auto column = static_cast<std::size_t>(begin); column < static_cast<std::size_t>(end); ++column) {
      const auto row = tensor.data.subspan(column * row_bytes, row_bytes);
      unpack_quant_row(tensor.type, row, quants, products, products);
      const auto* block = reinterpret_cast<const std::uint8_t*>(row.data());
      for (std::size_t g = 0; g < groups; ++g) {
        const std::size_t group = column * groups + g;
        put_group(quants.data() + g * kGroup, shape, planes + group * 16,
                  planes + at.high + group * shape.high_bytes());
        if (g % block_groups != 0) continue;
        put_scales(tensor.type, block, planes + at.scales + group * shape.scale_bytes(),
                   planes + at.supers + group / kSuperGroups * shape.super_bytes());
        block += info.block_bytes;
      }
    }
  });
}

void bf16_rows(const GgufTensor& tensor, ThreadPool& pool, std::span<std::uint16_t> out) {
  FOLIO_CHECK(!has_quant_form(tensor.type), "only float formats are rounded on the host");
  const std::size_t depth = tensor.row_length();
  const auto columns = static_cast<std::int64_t>(tensor.num_rows());
  FOLIO_CHECK(out.size() == depth * static_cast<std::size_t>(columns), "the size of the rounded matrix");
  if (tensor.type == TensorType::kBF16) {
    std::memcpy(out.data(), tensor.data.data(), out.size_bytes());
    return;
  }
  const std::size_t row_bytes = depth * tensor_type_info(tensor.type).block_bytes;
  pool.parallel_for(columns, kColumnsAtOnce, [&](std::int64_t begin, std::int64_t end, int) {
    std::vector<float> row(depth);
    for (auto column = static_cast<std::size_t>(begin); column < static_cast<std::size_t>(end); ++column) {
      dequantize(tensor.type, tensor.data.subspan(column * row_bytes, row_bytes), row);
      std::transform(row.begin(), row.end(), out.begin() + static_cast<std::ptrdiff_t>(column * depth), to_bf16);
    }
  });
}

}  // namespace folio::cuda
