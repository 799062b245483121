#include "engine/kernels/cpu/projector.h"

#include <algorithm>

#include "base/check.h"
#include "engine/kernels/cpu/packed_matrix.h"

namespace folio::cpu {
namespace {

constexpr int kRowsPerItem = 192;   // of a matmul: activations of an item stay in the second-level cache
constexpr int kGatedRows = 64;      // whose gate and up stay in the first
constexpr int kItemsPerThread = 6;  // pieces of a one-row matmul: the faster core takes more of them

const PackedMatrix& packed(const WeightMatrix& matrix) {
  return static_cast<const PackedMatrix&>(matrix);
}

MatmulArgs arguments(const ActivationRows& in, const WeightMatrix& matrix) {
  MatmulArgs args{};
  packed(matrix).fill(args);
  if (in.has_integers()) args.quantized = in.integers(0);
  if (in.has_floats()) args.x = in.floats(0);
  return args;
}

const std::uint8_t* panel_at(const MatmulArgs& args, int panel) {
  return args.panels + product(panel, 1) * args.panel_bytes;
}

MatmulFn matmul_of(const KernelTable& kernels, const WeightMatrix& matrix) {
  return kernels.matmul[static_cast<int>(packed(matrix).format())];
}

// Row blocks x runs of panels.
struct Cut {
  int rows = 0, panels = 0, run = 1;

  std::int64_t runs() const { return (panels + run - 1) / run; }
  std::int64_t items() const { return (rows + kRowsPerItem - 1) / kRowsPerItem * runs(); }
  int panel_begin(std::int64_t item) const { return static_cast<int>(item % runs()) * run; }
  int panel_end(std::int64_t item) const { return std::min(panel_begin(item) + run, panels); }
  int row_begin(std::int64_t item) const { return static_cast<int>(item / runs()) * kRowsPerItem; }
  int row_end(std::int64_t item) const { return std::min(row_begin(item) + kRowsPerItem, rows); }
};

int panels_of_a_run(std::int64_t panels, int num_threads) {
  return static_cast<int>(std::clamp<std::int64_t>(panels / (num_threads * kItemsPerThread), 1, 32));
}

}  // namespace

void ActivationRows::reserve(int rows, std::int32_t depth, bool floats, bool integers) {
  rows_ = rows;
  depth_ = depth;
  has_floats_ = floats;
  has_integers_ = integers;
  if (floats) floats_.reserve(product(rows, depth));
  if (!integers) return;
  q_.reserve(product(rows, depth));
  groups_.reserve(product(rows, depth / kQuantGroup));
}

QuantizedRows ActivationRows::integers(std::int64_t row, std::int64_t column) const {
  return {static_cast<std::size_t>(depth_), q_.data() + row * depth_ + column,
          groups_.data() + row * (depth_ / kQuantGroup) + column / kQuantGroup};
}

Projector::Projector(const KernelTable& kernels, ThreadPool& pool)
    : kernels_(kernels), pool_(pool), workers_(static_cast<std::size_t>(pool.num_threads())) {
  // Zeros: the activation also passes over the columns of a last panel that no product writes.
  for (Worker& worker : workers_) {
    std::fill_n(worker.gate.reserve(product(kGatedRows, kPanelColumns)), kGatedRows * kPanelColumns, 0.0F);
    std::fill_n(worker.up.reserve(product(kGatedRows, kPanelColumns)), kGatedRows * kPanelColumns, 0.0F);
  }
}

void Projector::begin_step() {
  products_ = product_;
  product_ = 0;
}

template <class WeightsOf>
void Projector::open_product(std::int64_t items, WeightsOf weights_of) {
  const auto threads = static_cast<std::size_t>(pool_.num_threads());
  if (starts_.size() < (product_ + 1) * threads) starts_.resize((product_ + 1) * threads);
  for (std::size_t w = 0; w < threads; ++w) {
    const std::int64_t first = pool_.first_piece(static_cast<std::int64_t>(w), items);
    starts_[product_ * threads + w] = first < items ? weights_of(first) : nullptr;
  }
  ++product_;
}

template <class WeightsOf>
const std::uint8_t* Projector::after(std::int64_t item, std::int64_t items, WeightsOf weights_of) const {
  const std::int64_t worker = pool_.share_of(item, items);
  if (item + 1 < pool_.first_piece(worker + 1, items)) return weights_of(item + 1);
  if (products_ == 0) return nullptr;
  const std::size_t next = product_ < products_ ? product_ : 0;
  return starts_[next * static_cast<std::size_t>(pool_.num_threads()) + static_cast<std::size_t>(worker)];
}

void Projector::prepare(const float* x, std::span<const std::int32_t> from, int rows, Norm norm,
                        std::span<const Projection> projections, ActivationRows& to) {
  const std::int32_t depth = projections[0].matrix->depth();
  bool floats = false;
  bool integers = false;
  for (const Projection& p : projections) (packed(*p.matrix).is_integer() ? integers : floats) = true;
  to.reserve(rows, depth, floats, integers);
  const auto stride = static_cast<std::size_t>(depth);
  pool_.parallel_for(rows, kRowGrain, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t r = begin; r < end; ++r) {
      const float* row = x + (from.empty() ? r : from[static_cast<std::size_t>(r)]) * depth;
      if (norm.weight != nullptr) {
        float* normed = floats ? to.floats(r) : workers_[static_cast<std::size_t>(worker)].row.reserve(stride);
        kernels_.rms_norm(row, stride, norm.weight, norm.epsilon, 1, depth, normed, stride);
        row = normed;
      } else if (floats) {
        std::copy_n(row, stride, to.floats(r));
      }
      if (integers) kernels_.quantize_rows(row, stride, 1, depth, to.integers(r));
    }
  });
}

void Projector::project(const ActivationRows& in, std::span<const Projection> projections, bool add) {
  struct Part {
    MatmulArgs args;
    MatmulFn fn;
    Cut cut;
    std::int64_t first_item;
  };
  constexpr std::size_t kMaxParts = 4;
  FOLIO_CHECK(projections.size() <= kMaxParts, "too many projections share an input");
  Part parts[kMaxParts] = {};
  std::int64_t panels = 0;
  for (const Projection& p : projections) panels += packed(*p.matrix).num_panels();
  const int run = panels_of_a_run(panels, pool_.num_threads());
  std::int64_t items = 0;
  for (std::size_t i = 0; i < projections.size(); ++i) {
    const Projection& p = projections[i];
    Part& part = parts[i];
    part.args = arguments(in, *p.matrix);
    part.args.out = p.out;
    part.args.out_stride = static_cast<std::size_t>(p.matrix->columns());
    part.args.bias = p.bias;
    part.args.add = add;
    part.fn = matmul_of(kernels_, *p.matrix);
    part.cut = {in.rows(), packed(*p.matrix).num_panels(), run};
    part.first_item = items;
    items += part.cut.items();
  }
  const auto part_of = [&](std::int64_t item) -> const Part& {
    std::size_t i = projections.size() - 1;
    while (item < parts[i].first_item) --i;
    return parts[i];
  };
  const auto weights_of = [&](std::int64_t item) {
    const Part& part = part_of(item);
    return panel_at(part.args, part.cut.panel_begin(item - part.first_item));
  };
  open_product(items, weights_of);
  pool_.parallel_for(items, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t item = begin; item < end; ++item) {
      const Part& part = part_of(item);
      const std::int64_t at = item - part.first_item;
      part.fn(part.args, part.cut.panel_begin(at), part.cut.panel_end(at), part.cut.row_begin(at), part.cut.row_end(at),
              after(item, items, weights_of));
    }
  });
}

void Projector::project_gated(const ActivationRows& in, const WeightMatrix& gate, const WeightMatrix& up,
                              Activation activation, const WeightMatrix& next, ActivationRows& to) {
  const bool integers = packed(next).is_integer();
  to.reserve(in.rows(), next.depth(), !integers, integers);
  MatmulArgs gate_args = arguments(in, gate);
  MatmulArgs up_args = arguments(in, up);
  gate_args.out_stride = kPanelColumns;
  up_args.out_stride = kPanelColumns;
  const MatmulFn gate_fn = matmul_of(kernels_, gate);
  const MatmulFn up_fn = matmul_of(kernels_, up);
  const auto act = activation == Activation::kSilu ? kernels_.gate_silu : kernels_.gate_gelu;

  // One panel of both for some rows: 32 columns, which are a group of the quantised result.
  const auto gated_panel = [&](Worker& worker, int panel, int row_begin, int row_end, const std::uint8_t* gate_after,
                               const std::uint8_t* up_after) {
    const std::size_t floats = product(row_end - row_begin, kPanelColumns);
    MatmulArgs g = gate_args;
    MatmulArgs u = up_args;
    g.first_column = u.first_column = panel * kPanelColumns;
    g.first_row = u.first_row = row_begin;
    g.out = worker.gate.data();
    u.out = worker.up.data();
    gate_fn(g, panel, panel + 1, row_begin, row_end, gate_after);
    up_fn(u, panel, panel + 1, row_begin, row_end, up_after);
    act(g.out, u.out, g.out, floats);
    const std::int32_t columns = std::min(kPanelColumns, next.depth() - g.first_column);
    if (integers) {
      kernels_.quantize_rows(g.out, kPanelColumns, row_end - row_begin, columns,
                             to.integers(row_begin, g.first_column));
    } else {
      for (int r = row_begin; r < row_end; ++r) {
        std::copy_n(g.out + (r - row_begin) * kPanelColumns, columns, to.floats(r) + g.first_column);
      }
    }
  };
  const int panels = packed(gate).num_panels();
  const Cut cut{in.rows(), panels, panels_of_a_run(panels, pool_.num_threads())};
  const auto weights_of = [&](std::int64_t item) { return panel_at(gate_args, cut.panel_begin(item)); };
  open_product(cut.items(), weights_of);
  pool_.parallel_for(cut.items(), 1, [&](std::int64_t begin, std::int64_t end, int worker) {
    for (std::int64_t item = begin; item < end; ++item) {
      for (int panel = cut.panel_begin(item); panel < cut.panel_end(item); ++panel) {
        const std::uint8_t* gate_after =
            panel + 1 < cut.panel_end(item) ? panel_at(gate_args, panel + 1) : after(item, cut.items(), weights_of);
        const std::uint8_t* up_after = panel + 1 < panels ? panel_at(up_args, panel + 1) : nullptr;
        for (int row = cut.row_begin(item); row < cut.row_end(item); row += kGatedRows) {
          gated_panel(workers_[static_cast<std::size_t>(worker)], panel, row,
                      std::min(row + kGatedRows, cut.row_end(item)), gate_after, up_after);
          gate_after = up_after = nullptr;
        }
      }
    }
  });
}

}  // namespace folio::cpu
