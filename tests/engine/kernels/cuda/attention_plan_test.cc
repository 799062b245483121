#include "engine/kernels/cuda/attention_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "engine/kernels/cuda/attention_prefix.h"
#include "engine/kernels/cuda/attention_split.h"

namespace folio::cuda {
namespace {

using ::testing::ElementsAre;

// Appends a sequence of `count` tokens, the last of them at position context - 1; its table begins with `prefix`.
void add_sequence(StepBatch& batch, const AttentionSetup& setup, std::int32_t context, std::int32_t count,
                  const std::vector<BlockId>& prefix = {}) {
  if (batch.query_start.empty()) batch.query_start = batch.block_start = {0};
  for (std::int32_t i = 0; i < count; ++i) {
    batch.tokens.push_back(0);
    batch.positions.push_back(context - count + i);
  }
  batch.query_start.push_back(batch.num_tokens());
  batch.context_len.push_back(context);
  const auto blocks = static_cast<std::size_t>((context + setup.block_size - 1) / setup.block_size);
  for (std::size_t i = 0; i < blocks; ++i) {
    batch.block_ids.push_back(i < prefix.size() ? prefix[i] : 100000 + static_cast<BlockId>(batch.block_ids.size()));
  }
  batch.block_start.push_back(static_cast<std::int32_t>(batch.block_ids.size()));
}

struct KeyRange {
  std::int32_t begin, end, partial;
};

// What the plan reads for each token, in the order in which it is put together.
std::map<std::int32_t, std::vector<KeyRange>> ranges_of_tokens(const AttentionPlan& plan) {
  std::map<std::int32_t, std::vector<KeyRange>> of_token;
  std::map<std::int32_t, std::pair<std::int32_t, KeyRange>> of_partial;
  for (const auto* items : {&plan.tile_items, &plan.row_items}) {
    for (const AttentionItem& item : *items) {
      EXPECT_LT(item.key_begin, item.key_end);
      for (std::int32_t i = 0; i < item.num_rows; ++i) {
        const std::int32_t token = plan.rows.at(static_cast<std::size_t>(item.first_row + i));
        const KeyRange range{item.key_begin, item.key_end, item.first_partial < 0 ? -1 : item.first_partial + i};
        if (range.partial < 0) {
          of_token[token].push_back(range);
        } else {
          EXPECT_TRUE(of_partial.emplace(range.partial, std::pair{token, range}).second) << "two write one partial";
        }
      }
    }
  }
  for (const auto& [token, ranges] : of_token) EXPECT_EQ(ranges.size(), 1U) << "two write the output of " << token;
  EXPECT_EQ(static_cast<std::size_t>(plan.num_partials), of_partial.size());
  EXPECT_EQ(plan.merged_partials.size(), of_partial.size()) << "a partial that nobody merges";
  for (const AttentionMerge& merge : plan.merges) {
    EXPECT_EQ(of_token.count(merge.token), 0U);
    for (std::int32_t i = 0; i < merge.count; ++i) {
      const auto& [token, range] = of_partial.at(plan.merged_partials.at(static_cast<std::size_t>(merge.first + i)));
      EXPECT_EQ(token, merge.token);
      of_token[token].push_back(range);
    }
  }
  return of_token;
}

// Every token sees its keys once, in order, and nothing beyond what its tile sees is read.
void expect_sound(const StepBatch& batch, const AttentionSetup& setup, const AttentionPlan& plan) {
  const auto ranges = ranges_of_tokens(plan);
  ASSERT_EQ(ranges.size(), static_cast<std::size_t>(batch.num_tokens()));
  for (const auto& [token, parts] : ranges) {
    const std::int32_t position = batch.positions[static_cast<std::size_t>(token)];
    const std::int32_t first = setup.window > 0 ? std::max(0, position - setup.window + 1) : 0;
    EXPECT_LE(parts.front().begin, first);
    EXPECT_GT(parts.front().begin, first - setup.tile_tokens()) << "before every window of the tile";
    EXPECT_GT(parts.back().end, position);
    EXPECT_LE(parts.back().end, position + setup.tile_tokens());
    for (std::size_t i = 1; i < parts.size(); ++i) {
      EXPECT_EQ(parts[i].begin, parts[i - 1].end);
      if (setup.deterministic) {
        EXPECT_EQ(parts[i].begin % kFoldKeys, 0);
        EXPECT_LE(parts[i].end - parts[i].begin, kFoldKeys);
      }
    }
  }
  for (const AttentionItem& item : plan.tile_items) {
    EXPECT_LE(item.num_rows * setup.group(), attention_tile_rows(setup.head_dim));
  }
  for (const AttentionItem& item : plan.row_items) EXPECT_EQ(item.num_rows, 1);
  const auto bounds = attention_bounds(setup, batch.num_tokens(), batch.num_sequences());
  EXPECT_TRUE(bounds.contains(plan.extent()));
  if (batch.num_tokens() == batch.num_sequences()) {
    EXPECT_TRUE(decode_bounds(setup, batch.num_sequences()).contains(plan.extent()));
  }
}

AttentionPlan make_plan(const StepBatch& batch, const AttentionSetup& setup) {
  AttentionPlan plan;
  plan_attention(batch, setup, plan);
  expect_sound(batch, setup, plan);
  return plan;
}

AttentionSetup llama_setup() {
  return {.num_heads = 32, .num_kv_heads = 8, .head_dim = 128, .block_size = 16, .window = 0, .num_sms = 132};
}

TEST(AttentionPlanTest, WorkedExampleOfTheHeader) {
  const AttentionSetup setup{.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .num_sms = 2};
  StepBatch batch;
  add_sequence(batch, setup, 1000, 1);
  add_sequence(batch, setup, 400, 100);
  const AttentionPlan plan = make_plan(batch, setup);
  ASSERT_EQ(plan.tile_items.size(), 2U);
  EXPECT_EQ(plan.tile_items[0].first_row, 65);
  EXPECT_EQ(plan.tile_items[0].num_rows, 36);
  EXPECT_EQ(plan.tile_items[0].key_end, 400);
  EXPECT_EQ(plan.tile_items[0].first_partial, -1);
  EXPECT_EQ(plan.tile_items[1].first_row, 1);
  EXPECT_EQ(plan.tile_items[1].num_rows, 64);
  EXPECT_EQ(plan.tile_items[1].key_end, 364);
  EXPECT_EQ(plan.tile_items[1].first_block, 63);
  ASSERT_EQ(plan.row_items.size(), 3U);
  EXPECT_EQ(plan.row_items[0].key_end, 384);
  EXPECT_EQ(plan.row_items[1].key_begin, 384);
  EXPECT_EQ(plan.row_items[2].key_end, 1000);
  ASSERT_EQ(plan.merges.size(), 1U);
  EXPECT_THAT(plan.merged_partials, ElementsAre(0, 1, 2));
}

TEST(AttentionPlanTest, RandomBatchesAreSound) {
  std::mt19937 random(7);
  const auto draw = [&random](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 400; ++round) {
    SCOPED_TRACE("round " + std::to_string(round));
    AttentionSetup setup = llama_setup();
    setup.num_kv_heads = draw(1, 8);
    setup.num_heads = setup.num_kv_heads * draw(1, 16);
    setup.head_dim = draw(0, 1) == 0 ? 128 : 256;
    setup.block_size = 16 * draw(1, 3);
    setup.window = draw(0, 2) == 0 ? draw(1, 3000) : 0;
    setup.num_sms = draw(1, 200);
    setup.deterministic = draw(0, 2) == 0;
    std::vector<BlockId> prefix(static_cast<std::size_t>(draw(0, 60)));
    for (BlockId& block : prefix) block = draw(1, 1000);
    StepBatch batch;
    const bool has_chunks = draw(0, 1) == 0;
    for (int s = draw(1, 40); s > 0; --s) {
      const std::int32_t context = draw(1, draw(0, 3) == 0 ? 20000 : 700);
      const std::int32_t count = has_chunks && draw(0, 2) == 0 ? draw(1, std::min(context, 300)) : 1;
      add_sequence(batch, setup, context, count, draw(0, 1) == 0 ? prefix : std::vector<BlockId>{});
    }
    make_plan(batch, setup);
  }
}

TEST(AttentionPlanTest, OneLongDecodeFillsTheMachineInOneWave) {
  const AttentionSetup setup = llama_setup();
  StepBatch batch;
  add_sequence(batch, setup, 128 * 1024, 1);
  const AttentionPlan plan = make_plan(batch, setup);
  const auto ctas = static_cast<std::int32_t>(plan.row_items.size()) * setup.num_kv_heads;
  EXPECT_LE(ctas, 3 * setup.num_sms);
  EXPECT_GE(ctas, 3 * setup.num_sms * 9 / 10);
  EXPECT_EQ(plan.row_items[0].key_end % 64, 0);
}

TEST(AttentionPlanTest, ShortDecodesAreNotCut) {
  const AttentionSetup setup = llama_setup();
  StepBatch batch;
  for (int i = 0; i < 200; ++i) add_sequence(batch, setup, 200 + i % 50, 1);
  const AttentionPlan plan = make_plan(batch, setup);
  EXPECT_EQ(plan.row_items.size(), 200U);
  EXPECT_TRUE(plan.merges.empty());
}

TEST(AttentionPlanTest, OneLongAmongShortOnesIsCut) {
  const AttentionSetup setup = llama_setup();
  StepBatch batch;
  for (int i = 0; i < 100; ++i) add_sequence(batch, setup, 300, 1);
  add_sequence(batch, setup, 60000, 1);
  const AttentionPlan plan = make_plan(batch, setup);
  ASSERT_EQ(plan.merges.size(), 1U);
  EXPECT_EQ(plan.merges[0].token, 100);
  EXPECT_GE(plan.merges[0].count, 20);
}

TEST(AttentionPlanTest, ADecodeWithAWindowReadsTheWindowOnly) {
  AttentionSetup setup = llama_setup();
  setup.window = 100;
  StepBatch batch;
  add_sequence(batch, setup, 5000, 1);
  const AttentionPlan plan = make_plan(batch, setup);
  ASSERT_EQ(plan.row_items.size(), 1U);
  EXPECT_EQ(plan.row_items[0].key_begin, 4900);
  EXPECT_EQ(plan.row_items[0].key_end, 5000);
}

TEST(AttentionPlanTest, ASharedPrefixIsReadOnce) {
  AttentionSetup setup = llama_setup();
  std::vector<BlockId> prefix;
  for (BlockId block = 1; block <= 64; ++block) prefix.push_back(block);
  StepBatch batch;
  add_sequence(batch, setup, 2000, 1);
  for (int i = 0; i < 40; ++i) add_sequence(batch, setup, 1024 + 1 + i, 1, prefix);
  const AttentionPlan plan = make_plan(batch, setup);
  std::int32_t rows = 0, keys = 0;
  for (const AttentionItem& item : plan.tile_items) {
    rows = std::max(rows, item.num_rows);
    keys += item.key_end - item.key_begin;
  }
  EXPECT_EQ(rows, 32);        // 128 rows of 4 heads
  EXPECT_EQ(keys, 2 * 1024);  // 40 sequences are two tiles
  EXPECT_EQ(plan.merges.size(), 41U);
  setup.deterministic = true;
  make_plan(batch, setup);  // where nobody shares: expect_sound would see parts that are no runs
}

TEST(AttentionPlanTest, APrefixIsSharedUpToTheTokenThatIsWritten) {
  const AttentionSetup setup = llama_setup();
  std::vector<BlockId> table;
  for (BlockId block = 1; block <= 20; ++block) table.push_back(block);
  StepBatch batch;
  for (int i = 0; i < 4; ++i) add_sequence(batch, setup, 320, 1, table);  // the tables are equal to the end
  const AttentionPlan plan = make_plan(batch, setup);
  ASSERT_FALSE(plan.tile_items.empty());
  for (const AttentionItem& item : plan.row_items) {
    EXPECT_EQ(item.key_begin, 304);
    EXPECT_EQ(item.key_end, 320);
  }
}

TEST(SharedPrefixTest, WantsEnoughSharersAndEnoughKeys) {
  const auto find = [](int sharers, int shared_blocks, int others) {
    std::vector<BlockId> ids;
    std::vector<PrefixCandidate> candidates;
    for (int s = 0; s < sharers + others; ++s) {
      candidates.push_back({static_cast<std::int32_t>(ids.size()), 40});
      for (int b = 0; b < 40; ++b) ids.push_back(s < sharers && b < shared_blocks ? 1 + b : 1000 + 40 * s + b);
    }
    return find_shared_prefixes(ids, candidates, 16);
  };
  EXPECT_TRUE(find(3, 40, 2).empty());
  EXPECT_TRUE(find(8, 15, 2).empty());
  const auto found = find(4, 16, 2);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].num_blocks, 16);
  EXPECT_THAT(found[0].members, ElementsAre(0, 1, 2, 3));
}

// One block at the same place says nothing of the blocks before it.
TEST(SharedPrefixTest, LooksAtEveryBlock) {
  std::vector<BlockId> ids;
  std::vector<PrefixCandidate> candidates;
  for (int s = 0; s < 6; ++s) {
    candidates.push_back({static_cast<std::int32_t>(ids.size()), 20});
    for (int b = 0; b < 20; ++b) ids.push_back(s == 5 && b == 3 ? 999 : 1 + b);
  }
  const auto found = find_shared_prefixes(ids, candidates, 16);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].members, ElementsAre(0, 1, 2, 3, 4));
}

TEST(SplitTest, TheCheapestOfSmallCases) {
  const SplitCosts costs{
      .machine = 10, .most_parts = 40, .min_keys = 256, .key_tile = 64, .part_cost = 64, .merge_cost = 128};
  EXPECT_EQ(choose_part_keys(std::vector<std::int32_t>{200}, costs), 200);            // too short to cut
  EXPECT_EQ(choose_part_keys(std::vector<std::int32_t>{300}, costs), 300);            // the merge would cost more
  EXPECT_EQ(choose_part_keys(std::vector<std::int32_t>{1000}, costs), 256);           // no part is shorter
  EXPECT_EQ(choose_part_keys(std::vector<std::int32_t>{10240}, costs), 1024);         // one wave
  EXPECT_EQ(choose_part_keys(std::vector<std::int32_t>(10, 4096), costs), 4096);      // fills the machine as it is
  EXPECT_EQ(choose_part_keys(std::vector<std::int32_t>(41, 4096), costs), 4096);      // there are enough
  EXPECT_LT(choose_part_keys(std::vector<std::int32_t>(11, 4096), costs), 4096 / 2);  // the last would run alone
}

TEST(AttentionPlanTest, FlattenPutsEverythingWhereTheLayoutSays) {
  const AttentionSetup setup = llama_setup();
  StepBatch batch;
  add_sequence(batch, setup, 5000, 1);
  add_sequence(batch, setup, 300, 40);
  const AttentionPlan plan = make_plan(batch, setup);
  for (const AttentionExtent& extent : {plan.extent(), attention_bounds(setup, 64, 8)}) {
    const AttentionPlanLayout layout(extent);
    std::vector<std::int32_t> flat(layout.size, -7);
    flatten(plan, extent, flat);
    EXPECT_EQ(flat[kCountTileItems], static_cast<std::int32_t>(plan.tile_items.size()));
    EXPECT_EQ(flat[kCountRowItems], static_cast<std::int32_t>(plan.row_items.size()));
    EXPECT_EQ(flat[kCountMerges], 1);
    const AttentionItem& last = plan.row_items.back();
    EXPECT_EQ(flat[layout.row_items + plan.row_items.size() * 6 - 2], last.key_end);
    EXPECT_EQ(flat[layout.tile_items], plan.tile_items[0].first_row);
    EXPECT_EQ(flat[layout.merges + 2], plan.merges[0].count);
    EXPECT_EQ(flat[layout.merged_partials], plan.merged_partials[0]);
    EXPECT_EQ(flat[layout.rows + 40], 40);
  }
}

// 256 x 8 CTAs of equal length are 5.2 waves of 396: halves are 10.3, so less time goes by with few at work.
TEST(AttentionPlanTest, AManyWaysBatchIsCutToFillItsLastWave) {
  const AttentionSetup setup = llama_setup();
  StepBatch batch;
  for (int i = 0; i < 256; ++i) add_sequence(batch, setup, 4096, 1);
  EXPECT_EQ(make_plan(batch, setup).row_items.size(), 512U);
}

TEST(AttentionPlanTest, AnEmptyBatchHasNoWork) {
  const AttentionPlan plan = make_plan({}, llama_setup());
  EXPECT_TRUE(plan.tile_items.empty() && plan.row_items.empty() && plan.merges.empty());
}

}  // namespace
}  // namespace folio::cuda
