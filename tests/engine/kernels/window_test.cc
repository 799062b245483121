// Layers with a sliding window read and plan only what their window holds.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/engine/kernels/attention_runner.h"
#include "tests/engine/kernels/kv_reader.h"
#include "tests/engine/kernels/levels.h"

namespace folio::cpu {
namespace {

class Windows : public testing::TestWithParam<std::string> {};

// Blocks before the window are taken out of the table; a block full of NaN stands there. A single value of it that is
// read makes the output NaN (a masked key weighs 0, and 0 * NaN is NaN).
TEST_P(Windows, BlocksOutsideAreNotRead) {
  std::mt19937 random(3);
  for (const KvType type : kv_types_of(GetParam())) {
    for (const int block_size : {16, 64}) {
      for (const int window : {1, 16, 70, 300}) {
        const Shape shape{{4, 2, 40}, type, block_size, window};
        const std::vector<Sequence> sequences = {make_sequence(shape, 560, random), make_sequence(shape, 300, random)};
        const auto plain = AttentionRunner(shape, GetParam(), 1, 200, 1).run(sequences, 560);
        for (const int threads : {1, 2}) {
          for (const int chunk : {1, 100}) {
            AttentionRunner runner(shape, GetParam(), threads, 200, 2);
            const BlockId nan_block = 0;
            std::memset(runner.cache().data() + runner.cache().layout().head_offset(0, nan_block, 0), 0xFF,
                        runner.cache().layout().block_bytes());
            runner.forget_before_window(nan_block);
            const auto outputs = runner.run(sequences, chunk);
            for (std::size_t s = 0; s < sequences.size(); ++s) {
              ASSERT_EQ(outputs[s].size(), plain[s].size());
              EXPECT_EQ(std::memcmp(outputs[s].data(), plain[s].data(), plain[s].size() * sizeof(float)), 0)
                  << name_of(type) << " block size " << block_size << " window " << window << " threads " << threads
                  << " chunk " << chunk << " sequence " << s;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Windows, testing::ValuesIn(available_levels()),
                         [](const auto& level) { return level.param; });

StepBatch one_slice(int first, int count) {
  StepBatch batch;
  batch.clear();
  for (int p = first; p < first + count; ++p) batch.positions.push_back(p);
  batch.tokens.resize(static_cast<std::size_t>(count));
  batch.query_start.push_back(count);
  batch.context_len.push_back(first + count);
  return batch;
}

TEST(WindowPlan, PartitionsStopGrowingWithTheContext) {
  const AttentionShape shape{4, 1, 256};
  AttentionPlan plan;
  for (const int position : {511, 1000, 1023, 1024, 7000, 131071}) {
    plan_attention(one_slice(position, 1), shape, 512, 2, plan);
    ASSERT_EQ(plan.tiles.size(), 1U);
    EXPECT_EQ(plan.tiles[0].first_partition, (position - 511) / kPartition);
    EXPECT_EQ(plan.num_partitions, position / kPartition - (position - 511) / kPartition + 1);
    EXPECT_LE(plan.num_partitions, 3);
    plan_attention(one_slice(position, 1), shape, 0, 2, plan);
    EXPECT_EQ(plan.tiles[0].first_partition, 0);
    EXPECT_EQ(plan.num_partitions, position / kPartition + 1);
  }
}

// Partitions of a tile that is cut into pieces are stored until all are there: of a long context and a chunk of many
// rows that would be gigabytes.
TEST(WindowPlan, WhatIsStoredIsBoundedForAnyContext) {
  AttentionPlan plan;
  for (const AttentionShape& shape :
       {AttentionShape{32, 8, 128}, AttentionShape{8, 1, 256}, AttentionShape{64, 64, 64}}) {
    for (const int threads : {2, 16, 64}) {
      for (const int count : {1, 7, 128, 512, 2048}) {
        plan_attention(one_slice(131072 - count, count), shape, 0, threads, plan);
        EXPECT_LE(plan.num_stored * (shape.head_dim + 2) * 4, std::int64_t{threads} * (35 << 20))
            << shape.num_heads << " heads, " << threads << " threads, " << count << " tokens";
        std::int64_t walked = 0;
        std::int64_t stored = 0;
        for (const AttentionPiece& piece : plan.pieces) {
          const QueryTile& tile = plan.tiles[static_cast<std::size_t>(piece.tile)];
          walked += piece.end - piece.begin;
          const bool whole = piece.end - piece.begin == tile.num_partitions;
          EXPECT_EQ(whole, !tile.is_cut);
          if (!whole)
            stored += std::int64_t{tile.num_tokens} * shape.num_heads / shape.num_kv_heads * (piece.end - piece.begin);
        }
        EXPECT_EQ(walked, std::int64_t{plan.num_partitions} * shape.num_kv_heads);
        EXPECT_EQ(stored, plan.num_stored);
      }
    }
  }
  // Where it costs little there are pieces enough for all.
  plan_attention(one_slice(131071, 1), {32, 8, 128}, 0, 16, plan);
  EXPECT_GE(plan.pieces.size(), 16U * 8);
}

TEST(WindowPlan, PrefillTilesBeginAtTheirOwnWindow) {
  const AttentionShape shape{4, 1, 256};
  AttentionPlan plan;
  plan_attention(one_slice(6000, 512), shape, 512, 2, plan);
  std::int32_t items = 0;
  std::int32_t tokens = 0;
  for (const QueryTile& tile : plan.tiles) {
    const std::int32_t first = 6000 + tile.first_token;
    const std::int32_t last = first + tile.num_tokens - 1;
    EXPECT_EQ(tile.first_partition, (first - 511) / kPartition);
    EXPECT_EQ(tile.first_partition + tile.num_partitions - 1, last / kPartition);
    EXPECT_EQ(tile.first_item, items);
    items += tile.num_partitions;
    tokens += tile.num_tokens;
  }
  EXPECT_EQ(tokens, 512);
  EXPECT_EQ(plan.num_partitions, items);
}

}  // namespace
}  // namespace folio::cpu
