// A weight matrix in the layout of the CPU matmul (panel_format.h), made once at load from any tensor format.
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
  const PanelShape& shape() const { return kPanelShapes[static_cast<int>(format_)]; }
  void pack_float_panel(const GgufTensor& tensor, std::int32_t panel);
  void pack_integer_panel(const GgufTensor& tensor, std::int32_t panel);
  void unpack_integer_row(std::int32_t column, std::span<float> out) const;
  std::uint8_t* panel_at(std::int32_t panel) const { return data_ + static_cast<std::size_t>(panel) * panel_bytes_; }

  PanelFormat format_;
  std::size_t panel_bytes_ = 0;
  std::size_t mapped_bytes_ = 0;
  std::uint8_t* data_ = nullptr;  // huge pages where the system gives them
};

}  // namespace folio::cpu
