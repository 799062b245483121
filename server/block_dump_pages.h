// A BlockDump as messages of a bounded size.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/block_dump.h"
#include "folio/v1/control.pb.h"

namespace folio {

class BlockDumpPages {
 public:
  static constexpr std::int32_t kMaxEntries = 4096;  // block ids and blocks in a message
  static constexpr std::int32_t kTableEntries = 8;   // what a table's own numbers take of that

  explicit BlockDumpPages(std::shared_ptr<const BlockDump> dump) : dump_(std::move(dump)) {}

  v1::BlockDump next();  // REQUIRES !ended()
  bool ended() const { return next_block_ == dump_->blocks.size() && next_table_ == dump_->tables.size() && started_; }

 private:
  void add_table(v1::BlockDump& page, std::int32_t& room);

  const std::shared_ptr<const BlockDump> dump_;
  bool started_ = false;
  std::size_t next_table_ = 0;
  std::size_t next_in_table_ = 0;
  std::size_t next_block_ = 0;
};

}  // namespace folio
