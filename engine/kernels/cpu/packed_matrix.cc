#include "engine/kernels/cpu/packed_matrix.h"

#include <sys/mman.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/kernels/cpu/quant_rows.h"

namespace folio::cpu {
namespace {

struct FormatTraits {
  int bits;
  int group;  // weights to a scale; 0 for float formats
  int scale_bytes;
  bool has_min;
};

FormatTraits traits(PanelFormat format) {
  switch (format) {
    case PanelFormat::kF32:
      return {32, 0, 0, false};
    case PanelFormat::kF16:
    case PanelFormat::kBF16:
      return {16, 0, 0, false};
    case PanelFormat::kU4Half:
      return {4, 32, 2, false};
    case PanelFormat::kU4HalfMin:
      return {4, 32, 2, true};
    case PanelFormat::kU4FloatMin:
      return {4, 32, 4, true};
    case PanelFormat::kU8Half:
      return {8, 32, 2, false};
    case PanelFormat::kU8HalfMin:
      return {8, 32, 2, true};
    case PanelFormat::kU8FloatMin:
      return {8, 32, 4, true};
    case PanelFormat::kU8Float16:
      return {8, 16, 4, false};
    case PanelFormat::kCount:
      break;
  }
  return {};
}

PanelFormat panel_format(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return PanelFormat::kF32;
    case TensorType::kF16:
      return PanelFormat::kF16;
    case TensorType::kBF16:
      return PanelFormat::kBF16;
    case TensorType::kQ4_0:
      return PanelFormat::kU4Half;
    case TensorType::kQ4_1:
      return PanelFormat::kU4HalfMin;
    case TensorType::kQ4_K:
      return PanelFormat::kU4FloatMin;
    case TensorType::kQ5_0:
    case TensorType::kQ8_0:
      return PanelFormat::kU8Half;
    case TensorType::kQ5_1:
      return PanelFormat::kU8HalfMin;
    case TensorType::kQ5_K:
      return PanelFormat::kU8FloatMin;
    case TensorType::kQ6_K:
      return PanelFormat::kU8Float16;
  }
  FOLIO_CHECK(false, "a tensor type without a panel format");
}

// Where the integer k of a group stands, from the group's first byte: 4 steps of K for all columns in 64 bytes.
std::size_t place_in_group(int k, int lane) {
  return static_cast<std::size_t>(k / 4 * 64 + lane * 4 + k % 4);
}

std::size_t group_bytes(const FormatTraits& t) {
  return static_cast<std::size_t>(t.group * kPanelColumns * t.bits / 8);
}

void put_scale(std::uint8_t* at, int scale_bytes, float value) {
  if (scale_bytes == 2) {
    const std::uint16_t half = float_to_half(value);
    std::memcpy(at, &half, 2);
  } else {
    std::memcpy(at, &value, 4);
  }
}

float get_scale(const std::uint8_t* at, int scale_bytes) {
  if (scale_bytes == 2) {
    std::uint16_t half;
    std::memcpy(&half, at, 2);
    return half_to_float(half);
  }
  float value;
  std::memcpy(&value, at, 4);
  return value;
}

std::size_t round_up(std::size_t n, std::size_t to) {
  return (n + to - 1) / to * to;
}

}  // namespace

PackedMatrix::PackedMatrix(const GgufTensor& tensor, ThreadPool& pool)
    : WeightMatrix(static_cast<std::int32_t>(tensor.row_length()), static_cast<std::int32_t>(tensor.num_rows())),
      format_(panel_format(tensor.type)) {
  const FormatTraits t = traits(format_);
  const auto depth_bytes = static_cast<std::size_t>(depth()) * kPanelColumns * static_cast<std::size_t>(t.bits) / 8;
  scale_offset_ = round_up(depth_bytes, 64);
  min_offset_ = scale_offset_;
  panel_bytes_ = scale_offset_;
  if (t.group != 0) {
    zero_point_ = quant_zero_point(tensor.type);
    const auto scales = static_cast<std::size_t>(depth() / t.group * kPanelColumns * t.scale_bytes);
    min_offset_ = scale_offset_ + scales;
    panel_bytes_ = round_up(min_offset_ + (t.has_min ? scales : 0), 64);
  }
  // A full vector load past the last panel's end stays inside the map.
  mapped_bytes_ = bytes() + 64;
  void* memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("out of memory for tensor " + std::string(tensor.name) + " (" +
                             std::to_string(mapped_bytes_ >> 20U) + " MiB)");
  }
  madvise(memory, mapped_bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::uint8_t*>(memory);
  pool.parallel_for(columns(), 64, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t column = begin; column < end; ++column) {
      if (t.group == 0) {
        pack_float_row(tensor, static_cast<std::int32_t>(column));
      } else {
        pack_integer_row(tensor, static_cast<std::int32_t>(column));
      }
    }
  });
}

PackedMatrix::~PackedMatrix() {
  munmap(data_, mapped_bytes_);
}

void PackedMatrix::pack_float_row(const GgufTensor& tensor, std::int32_t column) {
  const std::size_t element = traits(format_).bits == 32 ? 4 : 2;
  const std::byte* row =
      tensor.data.data() + static_cast<std::size_t>(column) * static_cast<std::size_t>(depth()) * element;
  std::uint8_t* to = panel_of(column) + static_cast<std::size_t>(column % kPanelColumns) * element;
  for (int k = 0; k < depth(); ++k) {
    std::memcpy(to + static_cast<std::size_t>(k) * kPanelColumns * element, row + static_cast<std::size_t>(k) * element,
                element);
  }
}

void PackedMatrix::pack_integer_row(const GgufTensor& tensor, std::int32_t column) {
  const FormatTraits t = traits(format_);
  const auto num_groups = static_cast<std::size_t>(depth() / t.group);
  thread_local std::vector<std::uint8_t> quants;
  thread_local std::vector<float> scales;
  thread_local std::vector<float> minima;
  quants.resize(static_cast<std::size_t>(depth()));
  scales.resize(num_groups);
  minima.resize(num_groups);
  const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(columns());
  unpack_quant_row(tensor.type, tensor.data.subspan(static_cast<std::size_t>(column) * row_bytes, row_bytes), quants,
                   scales, minima);

  std::uint8_t* panel = panel_of(column);
  const int lane = column % kPanelColumns;
  const std::uint8_t* q = quants.data();
  for (std::size_t g = 0; g < num_groups; ++g, q += t.group) {
    std::uint8_t* to = panel + g * group_bytes(t);
    if (t.bits == 8) {
      for (int k = 0; k < t.group; ++k) to[place_in_group(k, lane)] = q[k];
    } else {
      const int half = t.group / 2;
      for (int k = 0; k < half; ++k) {
        to[place_in_group(k, lane)] = static_cast<std::uint8_t>(q[k] | q[k + half] << 4U);
      }
    }
  }
  for (std::size_t g = 0; g < num_groups; ++g) {
    const std::size_t at =
        (g * kPanelColumns + static_cast<std::size_t>(lane)) * static_cast<std::size_t>(t.scale_bytes);
    put_scale(panel + scale_offset_ + at, t.scale_bytes, scales[g]);
    if (t.has_min) put_scale(panel + min_offset_ + at, t.scale_bytes, minima[g]);
  }
}

void PackedMatrix::fill(MatmulArgs& args) const {
  args.panels = data_;
  args.panel_bytes = panel_bytes_;
  args.scale_offset = scale_offset_;
  args.min_offset = min_offset_;
  args.zero_point = zero_point_;
  args.depth = depth();
  args.columns = columns();
}

void PackedMatrix::unpack_row(std::int32_t column, std::span<float> out) const {
  if (is_integer()) {
    unpack_integer_row(column, out);
    return;
  }
  const int element = traits(format_).bits / 8;
  const std::uint8_t* at = panel_of(column) + column % kPanelColumns * element;
  for (float& value : out) {
    if (format_ == PanelFormat::kBF16) {
      std::uint16_t bits;
      std::memcpy(&bits, at, 2);
      value = bfloat16_to_float(bits);
    } else {
      value = get_scale(at, element);
    }
    at += kPanelColumns * element;
  }
}

void PackedMatrix::unpack_integer_row(std::int32_t column, std::span<float> out) const {
  const FormatTraits t = traits(format_);
  const std::uint8_t* panel = panel_of(column);
  const int lane = column % kPanelColumns;
  const int num_groups = depth() / t.group;
  for (int g = 0; g < num_groups; ++g) {
    const std::uint8_t* from = panel + static_cast<std::size_t>(g) * group_bytes(t);
    const auto at = static_cast<std::size_t>((g * kPanelColumns + lane) * t.scale_bytes);
    const float scale = get_scale(panel + scale_offset_ + at, t.scale_bytes);
    const float min = t.has_min ? get_scale(panel + min_offset_ + at, t.scale_bytes) : 0.0F;
    float* to = out.data() + static_cast<std::ptrdiff_t>(g) * t.group;
    for (int k = 0; k < t.group; ++k) {
      const int half = t.group / 2;
      const bool high = t.bits == 4 && k >= half;
      const unsigned byte = from[place_in_group(high ? k - half : k, lane)];
      const int integer = static_cast<int>(t.bits == 8 ? byte : high ? byte >> 4U : byte & 15U);
      to[k] = t.has_min ? scale * static_cast<float>(integer) + min : scale * static_cast<float>(integer - zero_point_);
    }
  }
}

}  // namespace folio::cpu
