// How many requests were refused at the door, by the code that their callers got. Any thread.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "base/error.h"

namespace folio {

class RefusalCounts {
 public:
  void add(ErrorCode code) { at(code).fetch_add(1, std::memory_order_relaxed); }
  std::int64_t of(ErrorCode code) const { return counts_[static_cast<std::size_t>(code)].load(); }

 private:
  std::atomic<std::int64_t>& at(ErrorCode code) { return counts_[static_cast<std::size_t>(code)]; }

  std::array<std::atomic<std::int64_t>, kNumErrorCodes> counts_{};
};

}  // namespace folio
