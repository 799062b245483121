#include "engine/kernels/cuda/row_ops.h"

#include "base/check.h"
#include "engine/kernels/cuda/row_outputs_device.h"

namespace folio::cuda {
namespace {

constexpr int kThreads = 256;

// Grids over `fours` columns of all rows, one a thread.
LaunchConfig flat_config(std::int64_t fours, cudaStream_t stream) {
  return {dim3(static_cast<unsigned>((fours + kThreads - 1) / kThreads)), kThreads, 0, stream};
}
FOLIO_DEVICE std::int64_t flat_index() {
  return std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
}

// One CTA a token. Four columns a thread: 8 bytes of the table, whole lines of x.
FOLIO_KERNEL(kThreads) embed_rows_kernel(EmbedRows work) {
  const std::int32_t token = work.tokens[blockIdx.x];
  const std::int32_t id = token >= 0 ? token : work.sampled[-1 - token];
  const bool known = id >= 0 && id < work.num_rows;
  const auto columns = static_cast<std::size_t>(work.columns);
  const __nv_bfloat16* from = work.table + (known ? static_cast<std::size_t>(id) * columns : 0);
  float* to = work.x + blockIdx.x * columns;
  for (std::size_t column = 4 * threadIdx.x; column < columns; column += 4 * kThreads) {
    uint2 packed{};
    if (known) packed = *reinterpret_cast<const uint2*>(from + column);
    const auto low = [](std::uint32_t pair) { return __builtin_bit_cast(float, pair << 16U); };
    const auto high = [](std::uint32_t pair) { return __builtin_bit_cast(float, pair & 0xffff0000U); };
    const float4 values{low(packed.x), high(packed.x), low(packed.y), high(packed.y)};
    store_floats(to + column, multiply(values, work.scale));
  }
}

// 1 / (1 + e^-x). The exponent is held where 2^ is finite; beyond, the result is next to 0.
FOLIO_DEVICE float sigmoid(float x) {
  constexpr float kLog2E = 1.4426950408889634F;
  return 1.0F / (1.0F + exp2_fast(fminf(x * -kLog2E, 126.0F)));
}
// gelu: x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3). Hendrycks, Gimpel, arXiv:1606.08415.
FOLIO_DEVICE float activate(Activation activation, float x) {
  if (activation == Activation::kSilu) return x * sigmoid(x);
  const float cubic = (x * x) * (x * 0.044715F);
  return x * sigmoid((x + cubic) * (2.0F * 0.7978845608028654F));
}

struct GateWork {
  GateRows rows;
  std::int64_t fours = 0;
};

FOLIO_KERNEL(kThreads) gate_rows_kernel(GateWork work) {
  const std::int64_t at = flat_index();
  const bool valid = at < work.fours;
  float4 value{};
  if (valid) {
    const float4 gate = load_floats(work.rows.gate + 4 * at);
    const Activation activation = work.rows.activation;
    value = multiply(float4{activate(activation, gate.x), activate(activation, gate.y), activate(activation, gate.z),
                            activate(activation, gate.w)},
                     load_floats(work.rows.up + 4 * at));
  }
  const std::int32_t fours = work.rows.columns / 4;
  write_row_outputs(work.rows.out, value, at / fours, static_cast<std::int32_t>(at % fours) * 4, work.rows.columns,
                    valid);
}

}  // namespace

void embed_rows(const EmbedRows& work, std::int32_t num_tokens, cudaStream_t stream) {
  FOLIO_CHECK(work.columns % 4 == 0, "rows of the embedding are written by 16 bytes");
  const int needed = (work.columns / 4 + kWarpSize - 1) / kWarpSize * kWarpSize;
  launch("embedding", embed_rows_kernel,
         {dim3(static_cast<unsigned>(num_tokens)), needed < kThreads ? needed : kThreads, 0, stream}, work);
}

void gate_rows(const GateRows& work, std::int32_t num_rows, cudaStream_t stream) {
  FOLIO_CHECK(work.columns % 4 == 0, "rows of the gate are read by 16 bytes");
  const std::int64_t fours = std::int64_t{num_rows} * (work.columns / 4);
  launch("gate", gate_rows_kernel, flat_config(fours, stream), {work, fours});
}

}  // namespace folio::cuda
