#include "block_manager/block_table.h"

#include <utility>

namespace folio {

BlockTable::BlockTable(BlockTable&& other) noexcept : pool_(other.pool_), ids_(std::exchange(other.ids_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = other.pool_;
  ids_ = std::exchange(other.ids_, {});
  return *this;
}

bool BlockTable::grow_to(std::int32_t num_blocks) {
  if (num_blocks - size() > pool_->num_free()) return false;
  while (size() < num_blocks) ids_.push_back(pool_->take());
  return true;
}

void BlockTable::clear() {
  for (; !ids_.empty(); ids_.pop_back()) pool_->give_back(ids_.back());
}

}  // namespace folio
