#include "engine/block_dump.h"

#include "block_manager/block_manager.h"
#include "scheduler/scheduler.h"

namespace folio {

BlockDump dump_blocks(const Scheduler& scheduler, const BlockManager& blocks) {
  BlockDump dump;
  dump.num_steps = scheduler.counts().num_steps;
  dump.block_size = blocks.block_size();
  const auto pin_holds = scheduler.pins().holds_by_block();
  dump.blocks.reserve(static_cast<std::size_t>(blocks.num_blocks()));
  for (BlockId id = 1; id <= blocks.num_blocks(); ++id) {
    dump.blocks.push_back({blocks.ref_count(id), blocks.is_sealed(id), pin_holds[static_cast<std::size_t>(id)] > 0});
  }
  const auto copy = [](const BlockTable& table) {
    return std::vector<BlockId>(table.ids().begin(), table.ids().end());
  };
  for (const Sequence* sequence : scheduler.running()) {
    dump.tables.push_back({sequence->owner->request.id, false, sequence->index, sequence->num_tokens(),
                           sequence->num_computed, copy(sequence->blocks)});
  }
  scheduler.pins().for_each([&](RequestId owner, const BlockTable& chain) {
    dump.tables.push_back({owner, true, 0, 0, 0, copy(chain)});
  });
  return dump;
}

}  // namespace folio
