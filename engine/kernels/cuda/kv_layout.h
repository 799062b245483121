// Where K and V live on the device: the only address arithmetic of this backend, for host and device.
//
// [layer][block][kv head]{K, V, scales}: K and V of one (block, head) are contiguous, each [block_size
// tokens][head_dim]: rows that cp.async takes whole and ldmatrix reads. Types of one byte have a float scale for each
// token of a head, value = element * scale: {K [block_size], V [block_size]} behind V. Block 0 is the null block. Every
// row is a multiple of 16 bytes: head_dim is a multiple of 16.
#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/kernels/cuda/device.h"

namespace folio::cuda {

enum class KvElement : std::uint8_t { kF16, kBF16, kInt8, kFp8 };  // kFp8: e4m3, from sm_89

struct KvLayout {
  std::int32_t num_layers = 0;
  std::int32_t num_kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t block_size = 16;
  std::int32_t num_blocks = 0;  // usable; the null block comes on top
  KvElement element = KvElement::kF16;

  FOLIO_HOST_DEVICE bool has_scales() const { return element == KvElement::kInt8 || element == KvElement::kFp8; }
  FOLIO_HOST_DEVICE std::size_t element_bytes() const { return has_scales() ? 1 : 2; }
  FOLIO_HOST_DEVICE std::size_t row_bytes() const { return element_bytes() * static_cast<std::size_t>(head_dim); }
  FOLIO_HOST_DEVICE std::size_t matrix_bytes() const { return row_bytes() * static_cast<std::size_t>(block_size); }
  FOLIO_HOST_DEVICE std::size_t scales_bytes() const {  // of K or of V
    return has_scales() ? sizeof(float) * static_cast<std::size_t>(block_size) : 0;
  }
  FOLIO_HOST_DEVICE std::size_t head_bytes() const { return 2 * (matrix_bytes() + scales_bytes()); }
  FOLIO_HOST_DEVICE std::size_t block_bytes_per_layer() const {
    return head_bytes() * static_cast<std::size_t>(num_kv_heads);
  }
  FOLIO_HOST_DEVICE std::size_t layer_bytes() const {
    return block_bytes_per_layer() * (static_cast<std::size_t>(num_blocks) + 1);
  }
  FOLIO_HOST_DEVICE std::size_t total_bytes() const { return layer_bytes() * static_cast<std::size_t>(num_layers); }

  // Byte offsets from the cache's start.
  FOLIO_HOST_DEVICE std::size_t head_offset(std::int32_t layer, std::int32_t block, std::int32_t kv_head) const {
    return static_cast<std::size_t>(layer) * layer_bytes() + static_cast<std::size_t>(block) * block_bytes_per_layer() +
           static_cast<std::size_t>(kv_head) * head_bytes();
  }
  // From there:
  FOLIO_HOST_DEVICE std::size_t key_row(std::int32_t token) const {
    return row_bytes() * static_cast<std::size_t>(token);
  }
  FOLIO_HOST_DEVICE std::size_t value_row(std::int32_t token) const { return matrix_bytes() + key_row(token); }
  FOLIO_HOST_DEVICE std::size_t key_scale(std::int32_t token) const {
    return 2 * matrix_bytes() + sizeof(float) * static_cast<std::size_t>(token);
  }
  FOLIO_HOST_DEVICE std::size_t value_scale(std::int32_t token) const { return scales_bytes() + key_scale(token); }
};

}  // namespace folio::cuda
