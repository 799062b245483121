// Weights in the layout of the CPU matmul: panels of 16 output columns, made once at load from any tensor format.
//
// Integer formats: groups of 32 (Q6_K: 16) weights along K share a scale. A panel is three regions:
//   integers  8-bit: [group][k / 4][16 columns][4]: one 64-byte load is 4 steps of K for 16 columns (what VNNI eats);
//             4-bit: the same with two halves of the group in a byte: low nibble k, high nibble k + 16
//   scales    [group][16 columns]   f16 where the file's are (the product stays exact), f32 for K-quants
//   minima    [group][16 columns]   where the format has them
// Stored integers are unsigned: w = scale * (u - zero_point) or scale * u + min, bit for bit the file's values (5- and
// 6-bit integers take a byte here). Float formats: [k][16 columns] in the file's own precision. Columns past the matrix
// are zero.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "engine/gguf/gguf_file.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/kernel_table.h"

namespace folio::cpu {

class PackedMatrix final : public WeightMatrix {
 public:
  PackedMatrix(const GgufTensor& tensor, ThreadPool& pool);  // a matrix: 1 or 2 dimensions
  ~PackedMatrix() override;
  PackedMatrix(const PackedMatrix&) = delete;
  PackedMatrix& operator=(const PackedMatrix&) = delete;

  PanelFormat format() const { return format_; }
  bool is_integer() const { return format_ > PanelFormat::kBF16; }
  int num_panels() const { return (columns() + kPanelColumns - 1) / kPanelColumns; }
  std::size_t bytes() const { return static_cast<std::size_t>(num_panels()) * panel_bytes_; }

  void fill(MatmulArgs& args) const;                                 // the weight fields
  void unpack_row(std::int32_t column, std::span<float> out) const;  // the weights of one output; exact

 private:
  void pack_float_row(const GgufTensor& tensor, std::int32_t column);
  void pack_integer_row(const GgufTensor& tensor, std::int32_t column);
  void unpack_integer_row(std::int32_t column, std::span<float> out) const;
  std::uint8_t* panel_of(std::int32_t column) const {
    return data_ + static_cast<std::size_t>(column / kPanelColumns) * panel_bytes_;
  }

  PanelFormat format_;
  std::int32_t zero_point_ = 0;
  std::size_t panel_bytes_ = 0;
  std::size_t scale_offset_ = 0;
  std::size_t min_offset_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::uint8_t* data_ = nullptr;  // huge pages where the system gives them
};

}  // namespace folio::cpu
