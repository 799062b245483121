#include "block_manager/block_table.h"

#include <utility>

namespace folio {

BlockTable::BlockTable(BlockTable&& other) noexcept
    : pool_(other.pool_),
      ids_(std::exchange(other.ids_, {})),
      num_sealed_(std::exchange(other.num_sealed_, 0)),
      tip_(std::exchange(other.tip_, {})) {}

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this == &other) return *this;
  clear();
  pool_ = other.pool_;
  ids_ = std::exchange(other.ids_, {});
  num_sealed_ = std::exchange(other.num_sealed_, 0);
  tip_ = std::exchange(other.tip_, {});
  return *this;
}

void BlockTable::clear() {
  for (; !ids_.empty(); ids_.pop_back()) pool_->give_back(ids_.back());
  num_sealed_ = 0;
  tip_ = {};
}

}  // namespace folio
