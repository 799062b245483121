// How full the blocks are.
#pragma once
#include <cstdint>

namespace folio {

// Token positions of the blocks that running sequences hold, each block once.
struct SlotUse {
  std::int64_t held = 0;
  std::int64_t used = 0;  // with the K/V of a token
};

}  // namespace folio
