// The dump of all blocks: right at its moment, given while the engine works and while it sleeps.
#include "engine/block_dump.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <map>
#include <utility>
#include <vector>

#include "tests/engine/reader.h"

namespace folio {
namespace {

std::shared_ptr<const BlockDump> dump_of(Rig& rig) {
  std::promise<std::shared_ptr<const BlockDump>> given;
  rig.engine->dump_blocks([&given](std::shared_ptr<const BlockDump> dump) { given.set_value(std::move(dump)); });
  return given.get_future().get();
}

// Every holder is a table that is listed, and every id is one of the pool's.
void expect_whole(const BlockDump& dump) {
  std::map<BlockId, std::int32_t> holders;
  for (const BlockDump::Table& table : dump.tables) {
    EXPECT_LE(table.num_computed, table.num_tokens);
    if (!table.is_pin) {
      EXPECT_GE(static_cast<std::int64_t>(table.blocks.size()) * dump.block_size, table.num_computed);
    }
    for (const BlockId id : table.blocks) {
      EXPECT_GE(id, 1);
      EXPECT_LE(id, static_cast<BlockId>(dump.blocks.size()));
      ++holders[id];
    }
  }
  for (std::size_t i = 0; i < dump.blocks.size(); ++i) {
    EXPECT_EQ(dump.blocks[i].num_holders, holders[static_cast<BlockId>(i) + 1]) << "block " << i + 1;
    EXPECT_TRUE(!dump.blocks[i].pinned || dump.blocks[i].num_holders > 0) << "block " << i + 1;
  }
}

class BlockDumpTest : public AtDepth {};
FOLIO_AT_BOTH_DEPTHS(BlockDumpTest);

TEST_P(BlockDumpTest, AnIdleEngineAnswers) {
  Rig rig;
  const auto dump = dump_of(rig);
  EXPECT_EQ(dump->blocks.size(), 64U);
  EXPECT_EQ(dump->block_size, 4);
  EXPECT_TRUE(dump->tables.empty());
  for (const BlockDump::Block& block : dump->blocks)
    EXPECT_FALSE(block.num_holders > 0 || block.sealed || block.pinned);
}

TEST_P(BlockDumpTest, CachedAndPinnedBlocksAreSaidSo) {
  Rig rig;
  GenerationRequest pinned = request_of(1, 18, 3);
  pinned.cache.pin_ms = CacheParams::kPinForever;
  Reader first;
  const RequestId id = rig.submit(pinned, first);
  first.wait_end();
  Reader second;
  rig.submit(request_of(2, 13, 2), second);
  second.wait_end();
  const auto dump = dump_of(rig);
  expect_whole(*dump);
  ASSERT_EQ(dump->tables.size(), 1U);
  EXPECT_TRUE(dump->tables[0].is_pin);
  EXPECT_EQ(dump->tables[0].request, id);
  EXPECT_EQ(dump->tables[0].blocks.size(), 4U);
  const LoadSnapshot load = rig.engine->load();
  const auto count = [&](auto&& holds) { return std::count_if(dump->blocks.begin(), dump->blocks.end(), holds); };
  EXPECT_EQ(count([](const auto& block) { return block.pinned; }), load.blocks_pinned);
  EXPECT_EQ(count([](const auto& block) { return block.num_holders > 0; }), load.blocks_held);
  EXPECT_EQ(count([](const auto& block) { return block.num_holders == 0 && block.sealed; }), load.blocks_cached);
}

TEST_P(BlockDumpTest, RunningSequencesAreThereWithTheirTables) {
  Rig rig;
  Reader reader(3);
  const RequestId id = rig.submit(request_of(1, 10, 200, 3), reader);
  reader.wait_tokens(2, 2);
  bool seen = false;
  // While steps run: each dump is of one moment.
  for (int i = 0; i < 20; ++i) {
    const auto dump = dump_of(rig);
    expect_whole(*dump);
    if (dump->tables.size() != 3) continue;
    seen = true;
    for (std::size_t index = 0; index < 3; ++index) {
      EXPECT_EQ(dump->tables[index].request, id);
      EXPECT_FALSE(dump->tables[index].is_pin);
      EXPECT_EQ(dump->tables[index].blocks[0], dump->tables[0].blocks[0]) << "the prompt's blocks are shared";
    }
  }
  EXPECT_TRUE(seen || reader.ended());
  rig.engine->cancel(id);
  reader.wait_end();
  EXPECT_TRUE(dump_of(rig)->tables.empty());
}

TEST_P(BlockDumpTest, WhoAskedMeanwhileGetsTheSame) {
  Rig rig;
  Gate gate;
  std::promise<void> entered;
  bool held = false;
  rig.engine->add_observer(std::make_shared<StepObserver>([&](const StepRecord&) {
    if (std::exchange(held, true)) return;
    entered.set_value();
    gate.wait();
  }));
  Reader reader;
  rig.submit(request_of(1, 10, 5), reader);
  entered.get_future().wait();
  std::vector<std::promise<std::shared_ptr<const BlockDump>>> given(4);
  for (auto& one : given) {
    rig.engine->dump_blocks([&one](std::shared_ptr<const BlockDump> dump) { one.set_value(std::move(dump)); });
  }
  gate.open();
  const auto dump = given[0].get_future().get();
  for (std::size_t i = 1; i < given.size(); ++i) EXPECT_EQ(given[i].get_future().get()->num_steps, dump->num_steps);
  reader.wait_end();
}

}  // namespace
}  // namespace folio
