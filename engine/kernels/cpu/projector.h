// Rows of activations times weight matrices, over the pool. An input is brought into the form that the matrices want
// once (normed, quantised), however many share it. Work is cut over rows and columns, never over K.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/kernels/backend.h"
#include "engine/kernels/cpu/buffer.h"
#include "engine/kernels/cpu/kernel_table.h"

namespace folio::cpu {

inline constexpr std::int64_t kRowGrain = 4;  // rows of a cheap operation given out at once

// A step's rows as floats, as int8, or as both. The memory only grows.
class ActivationRows {
 public:
  void reserve(int rows, std::int32_t depth, bool floats, bool integers);
  std::int32_t depth() const { return depth_; }
  int rows() const { return rows_; }
  bool has_floats() const { return has_floats_; }
  bool has_integers() const { return has_integers_; }
  float* floats(std::int64_t row) const { return floats_.data() + row * depth_; }
  // From this row and column (a multiple of 32) on.
  QuantizedRows integers(std::int64_t row, std::int64_t column = 0) const;

 private:
  int rows_ = 0;
  std::int32_t depth_ = 0;
  bool has_floats_ = false;
  bool has_integers_ = false;
  Buffer<float> floats_;
  Buffer<std::int8_t> q_;
  Buffer<QuantGroup> groups_;
};

class Projector {
 public:
  Projector(const KernelTable& kernels, ThreadPool& pool);

  void begin_step();
  // Row i of `to` is norm(x[from[i]]), or norm(x[i]) where `from` is empty; in the forms that the matrices want.
  void prepare(const float* x, std::span<const std::int32_t> from, int rows, Norm norm,
               std::span<const Projection> projections, ActivationRows& to);
  // outs = in * W^T + bias; `add`: outs += instead.
  void project(const ActivationRows& in, std::span<const Projection> projections, bool add);
  // to = act(in * gate^T) * (in * up^T), in the form that `next` wants: the gated products are never in memory as whole
  // rows of floats.
  void project_gated(const ActivationRows& in, const WeightMatrix& gate, const WeightMatrix& up, Activation activation,
                     const WeightMatrix& next, ActivationRows& to);

 private:
  struct Worker {
    Buffer<float> row, gate, up;
  };
  // Each worker ends its share of a product by asking the memory for the start of its share of the next one, which is
  // the same in every step: `weights_of(item)` is where an item's weights begin.
  template <class WeightsOf>
  void open_product(std::int64_t items, WeightsOf weights_of);
  // What to ask for while the last panel of an item is used: the weights of the next item of the same share, or the
  // start of the worker's share in the next product.
  template <class WeightsOf>
  const std::uint8_t* after(std::int64_t item, std::int64_t items, WeightsOf weights_of) const;

  const KernelTable& kernels_;
  ThreadPool& pool_;
  std::vector<Worker> workers_;
  std::size_t product_ = 0;                  // of this step: how many were opened
  std::size_t products_ = 0;                 // of the step before
  std::vector<const std::uint8_t*> starts_;  // [product][worker], as last seen
};

}  // namespace folio::cpu
