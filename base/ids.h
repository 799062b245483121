// The integers that name things. Plain integers, one alias each: they index arrays and cross the wire.
#pragma once
#include <cstdint>

namespace folio {

using TokenId = std::int32_t;     // [0, vocab_size)
using BlockId = std::int32_t;     // [0, num_blocks]; 0 is the null block, never handed out
using RequestId = std::uint64_t;  // unique in a process, never reused; 0 is none

}  // namespace folio
