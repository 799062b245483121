// The host's part of a step: sizes of graphs, and where things lie in what is uploaded.
#include "engine/kernels/cuda/step_arrays.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/kernels/cuda/cuda_error.h"
#include "engine/kernels/cuda/step_graphs.h"

namespace folio::cuda {
namespace {

using ::testing::ElementsAre;

TEST(StepGraphsTest, DecodesArePaddedToFewSizes) {
  for (std::int32_t n = 1; n <= 8; ++n) EXPECT_EQ(padded_sequences(n), n);
  EXPECT_EQ(padded_sequences(9), 16);
  EXPECT_EQ(padded_sequences(16), 16);
  EXPECT_EQ(padded_sequences(57), 64);
  EXPECT_EQ(padded_sequences(65), 96);
  EXPECT_EQ(padded_sequences(256), 256);
  std::int32_t last = 0;
  for (std::int32_t n = 1; n <= 1024; ++n) {  // never less than there are, never back
    EXPECT_GE(padded_sequences(n), std::max(n, last));
    last = padded_sequences(n);
  }
}

AttentionSetup setup() {
  return {.num_heads = 4, .num_kv_heads = 2, .head_dim = 64, .block_size = 16, .window = 0, .num_sms = 4};
}

// Two decodes, at positions 5 and 20.
StepBatch decodes() {
  StepBatch batch;
  batch.tokens = {7, -1};
  batch.positions = {5, 20};
  batch.slots = {16 * 3 + 5, 16 * 9 + 4};
  batch.query_start = {0, 1, 2};
  batch.context_len = {6, 21};
  batch.block_start = {0, 1, 3};
  batch.block_ids = {3, 8, 9};
  batch.logit_rows = {0, 1};
  batch.copies = {{4, 5}, {6, 7}};
  return batch;
}

template <class T>
std::vector<T> read(const std::vector<std::byte>& bytes, std::size_t offset, std::size_t count) {
  const T* from = reinterpret_cast<const T*>(bytes.data() + offset);
  return {from, from + count};
}

TEST(StepArraysTest, PaddingDoesNothing) {
  const StepBatch batch = decodes();
  std::vector<AttentionPlan> plans(1);
  plan_attention(batch, setup(), plans[0]);
  StepShape shape{4, 4, 0, 4, {decode_bounds(setup(), 4)}};
  const StepLayout layout(shape);
  std::vector<std::byte> bytes(layout.bytes(batch), std::byte{0xff});
  const std::vector<SampleRow> samples{{.logit_row = 0, .temperature = 0.5F, .uniform = 0.25}, {.logit_row = 1}};
  write_step(batch, plans, samples, shape, layout, bytes.data());

  EXPECT_THAT(read<std::int32_t>(bytes, layout.tokens, 4), ElementsAre(7, -1, 0, 0));
  EXPECT_THAT(read<std::int32_t>(bytes, layout.positions, 4), ElementsAre(5, 20, 0, 0));
  EXPECT_THAT(read<std::int32_t>(bytes, layout.slots, 4), ElementsAre(53, 148, -1, -1));
  EXPECT_THAT(read<std::int32_t>(bytes, layout.logit_rows, 4), ElementsAre(0, 1, 0, 0));
  const auto rows = read<SampleRow>(bytes, layout.samples, 4);
  EXPECT_EQ(rows[0].uniform, 0.25);
  EXPECT_EQ(rows[1].logit_row, 1);
  EXPECT_EQ(rows[2].logit_row, -1);
  EXPECT_EQ(rows[3].logit_row, -1);
  EXPECT_THAT(read<BlockId>(bytes, layout.block_ids, 3), ElementsAre(3, 8, 9));
  const auto copies = read<int2>(bytes, layout.copies(batch), 2);
  EXPECT_EQ(copies[1].x, 6);
  EXPECT_EQ(copies[1].y, 7);
  const auto counts = read<std::int32_t>(bytes, layout.plans[0], kNumCounts);
  EXPECT_EQ(counts[kCountRowItems], 2);  // none of the padding
}

// A graph finds everything again, however long the tables are.
TEST(StepArraysTest, PlacesDependOnTheShapeAlone) {
  const StepShape shape{3, 2, 5, 2, {decode_bounds(setup(), 3), decode_bounds(setup(), 3)}};
  const StepLayout layout(shape);
  StepBatch longer = decodes();
  longer.block_ids.resize(100, 1);
  const std::size_t places[] = {layout.samples,    layout.tokens,        layout.positions, layout.slots,
                                layout.logit_rows, layout.score_rows,    layout.plans[0],  layout.plans[1],
                                layout.block_ids,  layout.copies(longer)};
  for (std::size_t i = 0; i < std::size(places); ++i) {
    EXPECT_EQ(places[i] % 16, 0U);
    if (i > 0) {
      EXPECT_GT(places[i], places[i - 1]);
    }
  }
  EXPECT_LE(layout.bytes(longer), largest_step_bytes(shape, 100, 2));
  EXPECT_GT(layout.bytes(longer), largest_step_bytes(shape, 99, 1));
}

TEST(AttentionWorkspaceTest, HasAPartialAndAStateForEachHead) {
  AttentionExtent extent;
  extent.partials = 10;
  EXPECT_EQ(attention_workspace_floats(setup(), extent), 10U * 4 * (64 + 2));
}

TEST(CudaErrorTest, StickyErrorsLoseTheDeviceAndOthersDoNot) {
  EXPECT_NO_THROW(check(cudaSuccess, "nothing"));
  EXPECT_THROW(check(cudaErrorIllegalAddress, "a step"), DeviceLost);
  EXPECT_THROW(check(cudaErrorECCUncorrectable, "a step"), DeviceLost);
  try {
    check(cudaErrorMemoryAllocation, "cudaMalloc");
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cudaMalloc: "));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("cudaErrorMemoryAllocation"));
  }
}

}  // namespace
}  // namespace folio::cuda
