#include "engine/kernels/cuda/block_copy.h"

namespace folio::cuda {
namespace {

constexpr int kThreads = 256;

struct BlockCopies {
  KvLayout layout;
  char* cache = nullptr;
  const int2* copies = nullptr;  // x: from, y: to
};

// One CTA for a copy's share in a layer.
FOLIO_KERNEL(kThreads) copy_blocks_kernel(BlockCopies work) {
  const int2 copy = work.copies[blockIdx.x];
  const auto layer = static_cast<std::int32_t>(blockIdx.y);
  const char* from = work.cache + work.layout.head_offset(layer, copy.x, 0);
  char* to = work.cache + work.layout.head_offset(layer, copy.y, 0);
  for (std::size_t at = 16 * threadIdx.x; at < work.layout.block_bytes_per_layer(); at += 16 * kThreads) {
    store_16(to + at, load_16(from + at));
  }
}

}  // namespace

void copy_blocks(const KvLayout& layout, void* cache, const int2* copies, std::int32_t num_copies,
                 cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(num_copies), static_cast<unsigned>(layout.num_layers));
  launch("block copies", copy_blocks_kernel, {grid, kThreads, 0, stream}, {layout, static_cast<char*>(cache), copies});
}

}  // namespace folio::cuda
