#include "engine/kernels/cuda/norm_rows.h"

#include "base/check.h"
#include "engine/kernels/cuda/row_outputs_device.h"

namespace folio::cuda {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;
constexpr int kHeld = kMaxNormColumns / (4 * kMaxThreads);

// 1 / sqrt(mean of squares + epsilon), of a row of which this thread has squared `squares`.
FOLIO_DEVICE float norm_factor(float squares, std::int32_t columns, float epsilon, float* partials) {
  return 1.0F / sqrtf(sum_over_cta(squares, partials) / static_cast<float>(columns) + epsilon);
}

// Calls visit(i, column) for this thread's columns: four from `column`, its i-th four.
template <class Visit>
FOLIO_DEVICE void for_columns(std::int32_t columns, Visit visit) {
  for (int i = 0; i < kHeld; ++i) {
    const auto column = static_cast<std::int32_t>(4 * (i * blockDim.x + threadIdx.x));
    if (column < columns) visit(i, column);
  }
}

// x += norm(projected); returns this thread's squares of the sum.
FOLIO_DEVICE float add_projected(const NormRows& work, float* x, float4 (&held)[kHeld], float* partials) {
  const float* from = work.projected + static_cast<std::size_t>(blockIdx.x) * static_cast<std::size_t>(work.columns);
  const float* weight = work.projected_norm.weight;
  float factor = 1.0F;
  if (weight != nullptr) {
    float squares = 0.0F;
    for_columns(work.columns,
                [&](int, std::int32_t column) { squares = add_squares(load_floats(from + column), squares); });
    factor = norm_factor(squares, work.columns, work.projected_norm.epsilon, partials);
  }
  float squares = 0.0F;
  for_columns(work.columns, [&](int i, std::int32_t column) {
    float4 value = load_floats(from + column);
    if (weight != nullptr) value = multiply(multiply(value, factor), load_floats(weight + column));
    held[i] = add(held[i], value);
    store_floats(x + column, held[i]);
    squares = add_squares(held[i], squares);
  });
  return squares;
}

// One CTA a row.
FOLIO_KERNEL(kMaxThreads) norm_rows_kernel(NormRows work) {
  SharedArena arena;
  float* partials = arena.take<float>(2 * kMaxWarps);
  const auto row = static_cast<std::int32_t>(blockIdx.x);
  const std::int32_t source = work.rows != nullptr ? work.rows[row] : row;
  float* x = work.x + static_cast<std::size_t>(source) * static_cast<std::size_t>(work.columns);
  float4 held[kHeld];
  float squares = 0.0F;
  for_columns(work.columns, [&](int i, std::int32_t column) {
    held[i] = load_floats(x + column);
    squares = add_squares(held[i], squares);
  });
  if (work.projected != nullptr) squares = add_projected(work, x, held, partials);
  if (work.out.bf16 == nullptr && work.out.quant.values == nullptr) return;

  float factor = 1.0F;
  const float* weight = work.norm.weight;
  if (weight != nullptr) factor = norm_factor(squares, work.columns, work.norm.epsilon, partials + kMaxWarps);
  for (int i = 0; i < kHeld; ++i) {
    const auto first = static_cast<std::int32_t>(4 * i * blockDim.x);
    if (first >= work.columns) break;
    const std::int32_t column = first + static_cast<std::int32_t>(4 * threadIdx.x);
    const bool valid = column < work.columns;
    float4 value{};
    if (valid) value = held[i];
    if (valid && weight != nullptr) value = multiply(multiply(value, factor), load_floats(weight + column));
    write_row_outputs(work.out, value, row, column, work.columns, valid);
  }
}

}  // namespace

void norm_rows(const NormRows& work, std::int32_t num_rows, cudaStream_t stream) {
  FOLIO_CHECK(work.columns > 0 && work.columns % 4 == 0 && work.columns <= kMaxNormColumns, "a row to norm");
  const int threads = (work.columns / 4 + kWarpSize - 1) / kWarpSize * kWarpSize;
  const LaunchConfig config{dim3(static_cast<unsigned>(num_rows)), threads < kMaxThreads ? threads : kMaxThreads,
                            2 * kMaxWarps * sizeof(float), stream};
  launch("norm of rows", norm_rows_kernel, config, work);
}

}  // namespace folio::cuda
