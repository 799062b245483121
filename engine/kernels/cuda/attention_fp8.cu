#include "engine/kernels/cuda/attention_launch.h"

namespace folio::cuda {

void attend_fp8(const AttentionWork& work, const AttentionExtent& extent, cudaStream_t stream) {
  constexpr KvElement kElement = KvElement::kFp8;
  switch (work.layout.head_dim) {
    case 64:
      return attend_items<kElement, 64>(work, extent, stream);
    case 80:
      return attend_items<kElement, 80>(work, extent, stream);
    case 96:
      return attend_items<kElement, 96>(work, extent, stream);
    case 128:
      return attend_items<kElement, 128>(work, extent, stream);
    case 256:
      return attend_items<kElement, 256>(work, extent, stream);
    default:
      throw std::invalid_argument("no attention kernel for head size " + std::to_string(work.layout.head_dim));
  }
}

}  // namespace folio::cuda
