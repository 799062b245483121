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
    same->until = std::max(same->until, until);
    std::rotate(same, same + 1, pins_.end());
    find_next_expiry();
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
  find_next_expiry();
  return true;
}

void Pins::release_at(std::size_t i) {
  for (BlockId id : pins_[i].chain.ids()) num_blocks_ -= --holds_[static_cast<std::size_t>(id)] == 0 ? 1 : 0;
  pins_.erase(pins_.begin() + static_cast<std::ptrdiff_t>(i));
  find_next_expiry();
}

void Pins::release(RequestId owner) {
  for (std::size_t i = pins_.size(); i-- > 0;) {
    if (pins_[i].owner == owner) release_at(i);
  }
}

void Pins::release_all() {
  while (release_oldest()) {
  }
}

void Pins::release_expired(TimePoint now) {
  if (next_expiry_ > now) return;
  for (std::size_t i = pins_.size(); i-- > 0;) {
    if (pins_[i].until <= now) release_at(i);
  }
}

void Pins::release_gone() {
  for (std::size_t i = pins_.size(); i-- > 0;) {
    if (!blocks_.holds(pins_[i].tip)) release_at(i);
  }
}

bool Pins::release_oldest() {
  if (pins_.empty()) return false;
  release_at(0);
  return true;
}

void Pins::find_next_expiry() {
  next_expiry_ = kNoDeadline;
  for (const Pin& pin : pins_) next_expiry_ = std::min(next_expiry_, pin.until);
}

void Pins::append_tables(std::vector<const BlockTable*>& tables) const {
  for (const Pin& pin : pins_) tables.push_back(&pin.chain);
}

bool Pins::counts_agree() const {
  std::vector<std::int32_t> holds(holds_.size(), 0);
  for (const Pin& pin : pins_) {
    for (BlockId id : pin.chain.ids()) ++holds[static_cast<std::size_t>(id)];
  }
  return holds == holds_ && num_blocks_ == std::count_if(holds.begin(), holds.end(), [](int n) { return n > 0; });
}

}  // namespace folio
