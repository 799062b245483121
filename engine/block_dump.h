// Where every block is at one moment between two steps: what a page map draws. Plain copies, so that the engine thread
// is stopped no longer than copying them takes; everything else is done by whoever asked.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/ids.h"

namespace folio {

class BlockManager;
class Scheduler;

struct BlockDump {
  struct Block {
    std::int32_t num_holders = 0;  // tables, pins and copies under way
    bool sealed = false;           // its content is in the prefix index; without a holder it is cached, else free
    bool pinned = false;
  };
  struct Table {
    RequestId request = 0;  // of a pin: the one that asked for it, which may be over
    bool is_pin = false;
    std::int32_t index = 0;         // of the request's sequences
    std::int64_t num_tokens = 0;    // of a sequence: prompt and output
    std::int64_t num_computed = 0;  // those whose K/V are in the blocks
    std::vector<BlockId> blocks;
  };
  std::int64_t num_steps = 0;  // committed until now
  std::int32_t block_size = 0;
  std::vector<Block> blocks;  // of block id 1, 2, 3 ...
  std::vector<Table> tables;  // running sequences, who is safest first, then pins, the oldest first
};

using BlockDumpReceiver = std::function<void(std::shared_ptr<const BlockDump>)>;

// Between steps, on the thread of both.
BlockDump dump_blocks(const Scheduler& scheduler, const BlockManager& blocks);

}  // namespace folio
