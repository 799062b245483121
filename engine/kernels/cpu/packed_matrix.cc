#include "engine/kernels/cpu/packed_matrix.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/gguf/unpack_quants.h"

namespace folio::cpu {
namespace {

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
      return PanelFormat::kU5Half;
    case TensorType::kQ5_1:
      return PanelFormat::kU5HalfMin;
    case TensorType::kQ5_K:
      return PanelFormat::kU5FloatMin;
    case TensorType::kQ6_K:
      return PanelFormat::kU6Float16;
    case TensorType::kQ8_0:
      return PanelFormat::kU8Half;
  }
  FOLIO_CHECK(false, "a tensor type without a panel format");
}

constexpr std::size_t kGroupWeights = kQuantGroup;
constexpr std::size_t kStepWeights = 4;

// The integers of one column's group of 32 out to their places (`group`: the vector's group, `lane` in it): a step's
// four at a time, as one word of four bytes.
void put_integers(const std::uint8_t* q, int bits, std::size_t lane, std::uint8_t* group) {
  constexpr std::uint32_t kLowNibbles = 0x0F0F0F0FU;
  std::uint32_t steps[kGroupWeights / kStepWeights];
  std::memcpy(steps, q, kGroupWeights);
  std::uint8_t* to = group + lane * kStepWeights;
  const auto put = [to](std::size_t at, std::uint32_t word) { std::memcpy(to + at, &word, kStepWeights); };
  if (bits == 8) {
    for (std::size_t step = 0; step < 8; ++step) put(step * 64, steps[step]);
    return;
  }
  for (std::size_t j = 0; j < 4; ++j) put(j * 64, (steps[j] & kLowNibbles) | (steps[j + 4] & kLowNibbles) << 4U);
  if (bits == 5) {
    std::uint32_t plane = 0;
    for (unsigned step = 0; step < 8; ++step) plane |= (steps[step] >> 4U & 0x01010101U) << step;
    put(256, plane);
  }
  if (bits == 6) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    for (unsigned j = 0; j < 4; ++j) {
      low |= (steps[j] >> 4U & 0x03030303U) << 2U * j;
      high |= (steps[j + 4] >> 4U & 0x03030303U) << 2U * j;
    }
    put(256, low);
    put(320, high);
  }
}

// And back.
unsigned integer_at(const std::uint8_t* group, int bits, std::size_t lane, std::size_t k) {
  const std::size_t step = k / kStepWeights;
  const std::size_t byte = lane * kStepWeights + k % kStepWeights;
  if (bits == 8) return group[step * 64 + byte];
  const std::size_t j = step % 4;
  const bool high = step >= 4;
  const unsigned nibble = group[j * 64 + byte] >> (high ? 4U : 0U) & 15U;
  if (bits == 5) return nibble | (group[256 + byte] >> step & 1U) << 4U;
  if (bits == 6) return nibble | (group[(high ? 320U : 256U) + byte] >> 2U * j & 3U) << 4U;
  return nibble;
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

// Where a column's weights lie: chunk by chunk in one vector of a panel.
struct ColumnPlace {
  std::size_t lane;
  std::uint8_t* vector;  // of the panel's first chunk

  std::uint8_t* group(const PanelShape& shape, std::size_t g) const {
    return vector + g / kChunkGroups * shape.chunk_bytes() + g % kChunkGroups * shape.group_bytes();
  }
  // Scale s of the column, counted along K.
  std::uint8_t* scale(const PanelShape& shape, std::size_t s) const {
    const auto in_chunk = static_cast<std::size_t>(kChunkGroups * kQuantGroup / shape.group);
    return vector + s / in_chunk * shape.chunk_bytes() + shape.scales_at() +
           (s % in_chunk * kVectorColumns + lane) * static_cast<std::size_t>(shape.scale_bytes);
  }
};

ColumnPlace place_of(const PanelShape& shape, std::uint8_t* panel, std::size_t column_in_panel) {
  return {column_in_panel % kVectorColumns, panel + column_in_panel / kVectorColumns * shape.vector_bytes()};
}

}  // namespace

PackedMatrix::PackedMatrix(const GgufTensor& tensor, ThreadPool& pool)
    : WeightMatrix(static_cast<std::int32_t>(tensor.row_length()), static_cast<std::int32_t>(tensor.num_rows())),
      format_(panel_format(tensor.type)) {
  const auto k = static_cast<std::size_t>(depth());
  const std::size_t chunk_weights = kChunkGroups * kGroupWeights;
  panel_bytes_ = is_integer() ? (k + chunk_weights - 1) / chunk_weights * shape().chunk_bytes()
                              : k * kPanelColumns * static_cast<std::size_t>(shape().bits) / 8;
  mapped_bytes_ = bytes();
  void* memory = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("out of memory for tensor " + std::string(tensor.name) + " (" +
                             std::to_string(mapped_bytes_ >> 20U) + " MiB)");
  }
  madvise(memory, mapped_bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::uint8_t*>(memory);
  pool.parallel_for(num_panels(), 2, [&](std::int64_t begin, std::int64_t end, int) {
    for (auto panel = static_cast<std::int32_t>(begin); panel < end; ++panel) {
      if (is_integer()) {
        pack_integer_panel(tensor, panel);
      } else {
        pack_float_panel(tensor, panel);
      }
    }
  });
}

PackedMatrix::~PackedMatrix() {
  munmap(data_, mapped_bytes_);
}

void PackedMatrix::pack_float_panel(const GgufTensor& tensor, std::int32_t panel) {
  const auto element = static_cast<std::size_t>(shape().bits) / 8;
  const auto k_end = static_cast<std::size_t>(depth());
  const std::int32_t first = panel * kPanelColumns;
  const std::int32_t end = std::min(first + kPanelColumns, columns());
  for (std::int32_t column = first; column < end; ++column) {
    const std::byte* row = tensor.data.data() + static_cast<std::size_t>(column) * k_end * element;
    std::uint8_t* to = panel_at(panel) + static_cast<std::size_t>(column - first) * element;
    for (std::size_t k = 0; k < k_end; ++k) std::memcpy(to + k * kPanelColumns * element, row + k * element, element);
  }
}

void PackedMatrix::pack_integer_panel(const GgufTensor& tensor, std::int32_t panel) {
  const auto k = static_cast<std::size_t>(depth());
  const auto num_scales = k / static_cast<std::size_t>(shape().group);
  thread_local std::vector<std::uint8_t> quants;
  thread_local std::vector<float> scales;
  thread_local std::vector<float> minima;
  quants.resize(k);
  scales.resize(num_scales);
  minima.resize(num_scales);
  const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(columns());
  const std::int32_t first = panel * kPanelColumns;
  const std::int32_t end = std::min(first + kPanelColumns, columns());
  for (std::int32_t column = first; column < end; ++column) {
    unpack_quant_row(tensor.type, tensor.data.subspan(static_cast<std::size_t>(column) * row_bytes, row_bytes), quants,
                     scales, minima);
    const ColumnPlace place = place_of(shape(), panel_at(panel), static_cast<std::size_t>(column - first));
    for (std::size_t g = 0; g < k / kGroupWeights; ++g) {
      put_integers(quants.data() + g * kGroupWeights, shape().bits, place.lane, place.group(shape(), g));
    }
    for (std::size_t s = 0; s < num_scales; ++s) {
      put_scale(place.scale(shape(), s), shape().scale_bytes, scales[s]);
      if (shape().has_min) put_scale(place.scale(shape(), s) + shape().scales_bytes(), shape().scale_bytes, minima[s]);
    }
  }
}

void PackedMatrix::fill(MatmulArgs& args) const {
  args.panels = data_;
  args.panel_bytes = panel_bytes_;
  args.depth = depth();
  args.columns = columns();
}

void PackedMatrix::unpack_row(std::int32_t column, std::span<float> out) const {
  if (is_integer()) {
    unpack_integer_row(column, out);
    return;
  }
  const int element = shape().bits / 8;
  const std::uint8_t* at = panel_at(column / kPanelColumns) + column % kPanelColumns * element;
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
  const ColumnPlace place =
      place_of(shape(), panel_at(column / kPanelColumns), static_cast<std::size_t>(column % kPanelColumns));
  const auto per_scale = static_cast<std::size_t>(shape().group);
  const int zero_point = 1 << shape().zero_bits;
  for (std::size_t k = 0; k < out.size(); k += per_scale) {
    const std::uint8_t* group = place.group(shape(), k / kGroupWeights);
    const std::uint8_t* at = place.scale(shape(), k / per_scale);
    const float scale = get_scale(at, shape().scale_bytes);
    const float min = shape().has_min ? get_scale(at + shape().scales_bytes(), shape().scale_bytes) : 0.0F;
    for (std::size_t i = k; i < k + per_scale; ++i) {
      const auto integer = static_cast<int>(integer_at(group, shape().bits, place.lane, i % kGroupWeights));
      out[i] = shape().has_min ? scale * static_cast<float>(integer) + min
                               : scale * static_cast<float>(integer - zero_point);
    }
  }
}

}  // namespace folio::cpu
