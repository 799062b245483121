// Prefixes that are held for a time although no sequence runs on them. A pin holds the whole chain of blocks from the
// root, so pinned blocks count as held and are not evicted. One prefix is pinned once: asking again makes the pin last
// longer, and it belongs to the request that asked last. All pins together hold at most a quota of blocks. One thread.
#pragma once
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "block_manager/block_manager.h"

namespace folio {

class Pins {
 public:
  Pins(BlockManager& blocks, std::int32_t max_blocks);  // blocks outlives the pins

  // False: the quota has no room for it, or the content is gone. `until` kNoDeadline: for ever.
  bool pin(RequestId owner, ContentRef tip, TimePoint until);
  void release(RequestId owner);  // unknown owners are ignored
  void release_all();
  void release_expired(TimePoint now);
  void release_gone();    // those whose content was forgotten
  bool release_oldest();  // the one asked for the longest ago; false: there is none

  std::int32_t size() const { return static_cast<std::int32_t>(pins_.size()); }
  std::int32_t num_blocks() const { return num_blocks_; }                                         // distinct ones
  TimePoint next_expiry() const { return expiries_.empty() ? kNoDeadline : *expiries_.begin(); }  // kNoDeadline: none
  std::span<const std::int32_t> holds_by_block() const { return holds_; }
  // fn(owner, chain) for each pin, the oldest first.
  template <class Fn>
  void for_each(Fn&& fn) const {
    for (const Pin& pin : pins_) fn(pin.owner, pin.chain);
  }
  void append_tables(std::vector<const BlockTable*>& tables) const;
  bool counts_agree() const;  // num_blocks, holds_by_block and next_expiry with the pins

 private:
  struct Pin {
    RequestId owner = 0;
    ContentRef tip;
    TimePoint until{};
    BlockTable chain;
  };
  template <class Pred>
  void release_if(Pred&& pred);
  void uncount(const Pin& pin);

  BlockManager& blocks_;
  const std::int32_t max_blocks_;
  std::deque<Pin> pins_;             // oldest first
  std::vector<std::int32_t> holds_;  // by block id: chains that hold it
  std::int32_t num_blocks_ = 0;
  std::multiset<TimePoint> expiries_;  // of pins_
};

}  // namespace folio
