// How an element of the KV cache is stored. A header of its own, without code: the level files include it.
#pragma once
#include <cstdint>

namespace folio {

enum class KvType : std::uint8_t {
  kF16,
  kF32,
  kBF16,
  kInt8,  // one float scale per token and head, for K and for V
  kCount
};

}  // namespace folio
