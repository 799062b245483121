#include "block_manager/pins.h"

#include <algorithm>
#include <utility>

namespace folio {

Pins::Pins(BlockManager& blocks, std::int32_t max_blocks)
    : blocks_(blocks), max_blocks_(max_blocks), holds_(static_cast<std::size_t>(blocks.num_blocks()) + 1, 0) {}

bool Pins::pin(RequestId owner, ContentRef tip, TimePoint until) {
  if (!blocks_.holds(tip)) return false;
  const auto same = std::find_if(pins_.begin(), pins_.end(), [&](const Pin& pin) { return pin.tip.id == tip.id; });
  if (same != pins_.end()) {
    same->owner = owner;
    expiries_.erase(expiries_.find(same->until));
    same->until = std::max(same->until, until);
    expiries_.insert(same->until);
    std::rotate(same, same + 1, pins_.end());
    return true;
  }
  BlockTable chain = blocks_.chain(tip);
  const auto ids = chain.ids();
  const auto num_new =
      std::count_if(ids.begin(), ids.end(), [&](BlockId id) { return holds_[static_cast<std::size_t>(id)] == 0; });
  if (ids.empty() || num_blocks_ + num_new > max_blocks_) return false;
  for (BlockId id : ids) ++holds_[static_cast<std::size_t>(id)];
  num_blocks_ += static_cast<std::int32_t>(num_new);
  pins_.push_back({owner, tip, until, std::move(chain)});
  expiries_.insert(until);
  return true;
}

void Pins::uncount(const Pin& pin) {
  for (BlockId id : pin.chain.ids()) num_blocks_ -= --holds_[static_cast<std::size_t>(id)] == 0 ? 1 : 0;
  expiries_.erase(expiries_.find(pin.until));
}

template <class Pred>
void Pins::release_if(Pred&& pred) {
  for (Pin& pin : pins_) {
    if (!pred(pin)) continue;
    uncount(pin);
    pin.chain.clear();  // the oldest first: its blocks are the first to be evicted
  }
  std::erase_if(pins_, [](const Pin& pin) { return pin.chain.size() == 0; });
}

void Pins::release(RequestId owner) {
  release_if([&](const Pin& pin) { return pin.owner == owner; });
}

void Pins::release_all() {
  release_if([](const Pin&) { return true; });
}

void Pins::release_expired(TimePoint now) {
  if (next_expiry() > now) return;
  release_if([&](const Pin& pin) { return pin.until <= now; });
}

void Pins::release_gone() {
  release_if([&](const Pin& pin) { return !blocks_.holds(pin.tip); });
}

bool Pins::release_oldest() {
  if (pins_.empty()) return false;
  uncount(pins_.front());
  pins_.pop_front();
  return true;
}

void Pins::append_tables(std::vector<const BlockTable*>& tables) const {
  for (const Pin& pin : pins_) tables.push_back(&pin.chain);
}

bool Pins::counts_agree() const {
  std::vector<std::int32_t> holds(holds_.size(), 0);
  for (const Pin& pin : pins_) {
    for (BlockId id : pin.chain.ids()) ++holds[static_cast<std::size_t>(id)];
  }
  std::multiset<TimePoint> expiries;
  for (const Pin& pin : pins_) expiries.insert(pin.until);
  return expiries == expiries_ && holds == holds_ &&
         num_blocks_ == std::count_if(holds.begin(), holds.end(), [](int n) { return n > 0; });
}

}  // namespace folio
