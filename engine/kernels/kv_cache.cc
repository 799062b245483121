#include "engine/kernels/kv_cache.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "engine/gguf/tensor_type.h"

namespace folio {

KvCache::KvCache(const KvCacheLayout& layout, ThreadPool& pool) : layout_(layout) {
  const std::size_t size = layout_.total_bytes();
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::runtime_error("KV cache: cannot map " + std::to_string(size >> 20U) + " MiB for " +
                             std::to_string(layout_.num_blocks) +
                             " blocks; give fewer with --kv-blocks or --kv-memory");
  }
  data_ = static_cast<std::byte*>(memory);
  madvise(memory, size, MADV_HUGEPAGE);  // only advice: a refusal changes nothing but speed
  constexpr std::size_t kPage = 4096;
  const auto pages = static_cast<std::int64_t>((size + kPage - 1) / kPage);
  pool.parallel_for(pages, 1 << 14, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t page = begin; page < end; ++page) {
      *reinterpret_cast<volatile std::uint8_t*>(data_ + static_cast<std::size_t>(page) * kPage) = 0;
    }
  });
}

KvCache::~KvCache() {
  munmap(data_, layout_.total_bytes());
}

void KvCache::copy_block(BlockId from, BlockId to) {
  for (int layer = 0; layer < layout_.num_layers; ++layer) {
    std::memcpy(data_ + layout_.head_offset(layer, to, 0), data_ + layout_.head_offset(layer, from, 0),
                layout_.block_bytes_per_layer());
  }
}

void KvCache::fill(float value) {
  if (layout_.type == KvType::kInt8) {
    fill_int8(value);
    return;
  }
  const std::size_t count = layout_.total_bytes() / layout_.element_bytes();
  if (layout_.type == KvType::kF32) {
    std::fill_n(reinterpret_cast<float*>(data_), count, value);
    return;
  }
  const std::uint16_t bits = layout_.type == KvType::kF16
                                 ? float_to_half(value)
                                 : static_cast<std::uint16_t>(__builtin_bit_cast(std::uint32_t, value) >> 16U);
  std::fill_n(reinterpret_cast<std::uint16_t*>(data_), count, bits);
}

void KvCache::fill_int8(float value) {
  const int q = value > 0 ? 127 : value < 0 ? -127 : 0;
  const float scale = std::fabs(value) / 127.0F;
  const std::size_t key_scales = layout_.key_scales_at();
  const std::size_t value_scales = layout_.value_scales_at();
  const std::size_t heads = layout_.total_bytes() / layout_.head_bytes();
  std::byte* at = data_;
  const auto fill_group = [&](std::size_t scales, int byte) {
    std::memset(at, byte, scales);
    std::fill_n(reinterpret_cast<float*>(at + scales), kKeyGroup, scale);
    at += scales + layout_.scale_bytes();
  };
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t g = 0; g < layout_.groups(); ++g) fill_group(key_scales, q + 128);
    for (std::size_t g = 0; g < layout_.groups(); ++g) fill_group(value_scales, q);
  }
}

}  // namespace folio
