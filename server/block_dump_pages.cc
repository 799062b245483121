#include "server/block_dump_pages.h"

#include <algorithm>

namespace folio {

v1::BlockDump BlockDumpPages::next() {
  v1::BlockDump page;
  std::int32_t room = kMaxEntries;
  if (!started_) {
    started_ = true;
    v1::BlockDump::Info& info = *page.mutable_info();
    info.set_num_steps(dump_->num_steps);
    info.set_block_size(dump_->block_size);
    info.set_num_blocks(static_cast<std::int32_t>(dump_->blocks.size()));
    info.set_num_tables(static_cast<std::int32_t>(dump_->tables.size()));
  }
  while (next_table_ < dump_->tables.size() && room > kTableEntries) add_table(page, room);
  if (next_table_ < dump_->tables.size()) return page;
  if (room > 0 && next_block_ < dump_->blocks.size()) page.set_first_block(static_cast<std::int32_t>(next_block_) + 1);
  for (; room > 0 && next_block_ < dump_->blocks.size(); --room, ++next_block_) {
    const BlockDump::Block& from = dump_->blocks[next_block_];
    v1::BlockDump::Block& block = *page.add_blocks();
    block.set_state(from.num_holders > 0 ? v1::BLOCK_STATE_HELD
                    : from.sealed        ? v1::BLOCK_STATE_CACHED
                                         : v1::BLOCK_STATE_FREE);
    block.set_num_holders(from.num_holders);
    block.set_sealed(from.sealed);
    block.set_pinned(from.pinned);
  }
  return page;
}

void BlockDumpPages::add_table(v1::BlockDump& page, std::int32_t& room) {
  const BlockDump::Table& from = dump_->tables[next_table_];
  v1::BlockDump::Table& table = *page.add_tables();
  table.set_request_id(from.request);
  table.set_pin(from.is_pin);
  table.set_index(from.index);
  table.set_num_tokens(from.num_tokens);
  table.set_num_computed_tokens(from.num_computed);
  table.set_first(static_cast<std::int32_t>(next_in_table_));
  room -= kTableEntries;
  const std::size_t count = std::min(from.blocks.size() - next_in_table_, static_cast<std::size_t>(room));
  const auto first = from.blocks.begin() + static_cast<std::ptrdiff_t>(next_in_table_);
  table.mutable_blocks()->Add(first, first + static_cast<std::ptrdiff_t>(count));
  room -= static_cast<std::int32_t>(count);
  next_in_table_ += count;
  if (next_in_table_ < from.blocks.size()) return;
  ++next_table_;
  next_in_table_ = 0;
}

}  // namespace folio
