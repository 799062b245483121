#include "engine/kernels/cuda/bf16_weights.h"

#include <cmath>

#include "base/check.h"
#include "engine/kernels/cuda/quant_group.h"

namespace folio::cuda {
namespace {

constexpr int kThreads = 256;

struct Bf16Weights {
  QuantMatrix matrix;
  __nv_bfloat16* out = nullptr;
};

// Of the signed byte b of the word.
template <TensorType kType>
FOLIO_DEVICE std::uint32_t bf16_of(std::uint32_t word, int b, float scale, float min) {
  const int integer = static_cast<std::int8_t>(word >> 8 * b & 0xFFU) >> QuantTraits<kType>::kShift;
  const float value = fmaf(scale, static_cast<float>(integer), min);
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

template <TensorType kType>
FOLIO_DEVICE std::uint32_t bf16_pair(std::uint32_t word, int b, float scale, float min) {
  return bf16_of<kType>(word, b, scale, min) | bf16_of<kType>(word, b + 1, scale, min) << 16U;
}

// One group a thread.
template <TensorType kType>
FOLIO_KERNEL(kThreads)
bf16_weights_kernel(Bf16Weights work) {
  const std::size_t group = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  const std::size_t groups = static_cast<std::size_t>(work.matrix.depth / kQuantGroup) * work.matrix.columns;
  if (group < groups) {
    const PackedGroup<kType> packed = load_group<kType>(work.matrix, group);
    const GroupScales by = unpack_scales(packed);
    std::uint32_t words[8];
    unpack_integers(packed, words);
    __nv_bfloat16* to = work.out + group * kQuantGroup;
#pragma unroll
    for (int w = 0; w < 8; w += 2) {
      const float scale = w < 4 ? by.scale : by.second;
      store_16(to + 4 * w,
               {bf16_pair<kType>(words[w], 0, scale, by.min), bf16_pair<kType>(words[w], 2, scale, by.min),
                bf16_pair<kType>(words[w + 1], 0, scale, by.min), bf16_pair<kType>(words[w + 1], 2, scale, by.min)});
    }
  }
}

using Kernel = void (*)(Bf16Weights);

Kernel kernel_of(TensorType type) {
  switch (type) {
    case TensorType::kQ4_0:
      return bf16_weights_kernel<TensorType::kQ4_0>;
    case TensorType::kQ4_1:
      return bf16_weights_kernel<TensorType::kQ4_1>;
    case TensorType::kQ4_K:
      return bf16_weights_kernel<TensorType::kQ4_K>;
    case TensorType::kQ5_0:
      return bf16_weights_kernel<TensorType::kQ5_0>;
    case TensorType::kQ5_1:
      return bf16_weights_kernel<TensorType::kQ5_1>;
    case TensorType::kQ5_K:
      return bf16_weights_kernel<TensorType::kQ5_K>;
    case TensorType::kQ6_K:
      return bf16_weights_kernel<TensorType::kQ6_K>;
    case TensorType::kQ8_0:
      return bf16_weights_kernel<TensorType::kQ8_0>;
    default:
      return nullptr;
  }
}

}  // namespace

void bf16_weights(const QuantMatrix& matrix, __nv_bfloat16* out, cudaStream_t stream) {
  const Kernel kernel = kernel_of(matrix.type);
  FOLIO_CHECK(kernel != nullptr, "only quantised matrices are expanded");
  const std::size_t groups =
      static_cast<std::size_t>(matrix.depth / kQuantGroup) * static_cast<std::size_t>(matrix.columns);
  const dim3 grid(static_cast<unsigned>((groups + kThreads - 1) / kThreads));
  launch("weights to bf16", kernel, {grid, kThreads, 0, stream}, {matrix, out});
}

}  // namespace folio::cuda
