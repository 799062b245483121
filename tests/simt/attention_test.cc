// The attention kernels, run on the CPU from their own source, against attention in double.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <ostream>
#include <string>

#include "tests/simt/attention_case.h"
#include "tests/simt/runner.h"

namespace folio::cuda {
namespace {

const char* name_of(KvElement element) {
  constexpr std::array kNames{"f16", "bf16", "int8", "fp8"};
  return kNames[static_cast<std::size_t>(element)];
}

std::string describe(const AttentionShape& shape) {
  return std::string(name_of(shape.element)) + " dim " + std::to_string(shape.head_dim) + " group " +
         std::to_string(shape.group) + " block " + std::to_string(shape.block_size) + " window " +
         std::to_string(shape.window) + (shape.deterministic ? " deterministic" : "");
}

// Of values from a normal distribution. The reference has queries, and elements of one byte times their scale, rounded
// to what the tensor cores multiply; weights are rounded too, and decodes of small groups round nothing.
double tolerance(const AttentionShape& shape) {
  return shape.element == KvElement::kBF16 ? 8e-3 : 1.5e-3;
}

void expect_near(const std::vector<float>& out, const std::vector<float>& expected, double tolerance) {
  ASSERT_EQ(out.size(), expected.size());
  double worst = 0.0;
  std::size_t at = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const double error = std::fabs(double{out[i]} - expected[i]);
    if (error > worst || std::isnan(error)) {
      worst = error;
      at = i;
      if (std::isnan(error)) break;
    }
  }
  EXPECT_TRUE(worst <= tolerance) << "element " << at << " is " << out[at] << ", not " << expected[at] << "; tolerance "
                                  << tolerance;
}

bool is_equal(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void check(const AttentionShape& shape, const std::vector<Sequence>& sequences) {
  SCOPED_TRACE(describe(shape));
  const AttentionCase attention(shape, sequences);
  expect_near(attention.run(), attention.reference(true), tolerance(shape));
}

constexpr std::array kElements{KvElement::kF16, KvElement::kBF16, KvElement::kInt8, KvElement::kFp8};
constexpr std::array kHeadDims{64, 80, 96, 128, 256};

// Every instantiation: decodes of one and of some keys and a chunk, by both decode kernels.
TEST(AttentionTest, EveryHeadSizeAndType) {
  int block_size = 16;
  for (const KvElement element : kElements) {
    for (const int head_dim : kHeadDims) {
      for (const int group : {2, 5}) {
        check({.element = element, .head_dim = head_dim, .group = group, .block_size = block_size},
              {{.context = 1}, {.context = 77, .content = 1}, {.context = 41, .count = 9, .content = 2}});
        block_size = 48 - block_size;  // 16 and 32 in turn, with either group
      }
      block_size = 48 - block_size;
    }
  }
}

// Kept as the next size that kernels have.
TEST(AttentionTest, HeadSizesBetweenThoseOfKernels) {
  for (const KvElement element : {KvElement::kBF16, KvElement::kInt8}) {
    for (const auto& [head_dim, stored_dim] : {std::pair{16, 64}, {72, 80}, {88, 96}, {112, 128}, {160, 256}}) {
      for (const int group : {2, 5}) {
        check({.element = element, .head_dim = head_dim, .stored_dim = stored_dim, .group = group},
              {{.context = 130}, {.context = 41, .count = 9, .content = 1}});
        check(
            {.element = element, .head_dim = head_dim, .stored_dim = stored_dim, .group = group, .deterministic = true},
            {{.context = 300, .count = 2}});
      }
    }
  }
}

TEST(AttentionTest, EveryGroup) {
  for (int group = 1; group <= 16; ++group) {
    check({.num_kv_heads = 2, .group = group},
          {{.context = 35}, {.context = 150, .content = 1}, {.context = 29, .count = 11, .content = 2}});
  }
}

// In float throughout: no rounding but that of the cache.
TEST(AttentionTest, SmallGroupsDecodeInFloat) {
  for (const KvElement element : kElements) {
    for (const int group : {1, 3}) {
      const AttentionShape shape{.element = element, .head_dim = 80, .group = group};
      SCOPED_TRACE(describe(shape));
      const AttentionCase attention(shape, {{.context = 200}, {.context = 63, .content = 1}});
      expect_near(attention.run(), attention.reference(false), 3e-6);
    }
  }
}

TEST(AttentionTest, EveryLengthAroundTheTiles) {
  for (const int group : {1, 4}) {
    std::vector<Sequence> decodes;
    for (const int length : {1, 2, 15, 16, 17, 31, 33, 48, 63, 64, 65, 79, 80, 81, 127, 128, 129}) {
      decodes.push_back({.context = length, .content = static_cast<std::uint32_t>(length)});
    }
    check({.group = group, .block_size = group == 1 ? 16 : 48}, decodes);
    std::vector<Sequence> chunks;
    for (const int length : {2, 16, 17, 31, 33, 64, 65, 127, 128, 129}) {
      chunks.push_back(
          {.context = length, .count = std::min(length, 3), .content = static_cast<std::uint32_t>(length)});
    }
    check({.group = group, .block_size = group == 1 ? 48 : 32}, chunks);
  }
}

TEST(AttentionTest, SequencesOfThreeHundredBlocks) {
  for (const int group : {1, 4}) {
    const AttentionShape shape{.element = KvElement::kBF16, .group = group, .num_sms = 5};
    const std::vector<Sequence> sequences{
        {.context = 4793}, {.context = 4800, .count = 3, .content = 1}, {.context = 20, .content = 2}};
    const AttentionCase attention(shape, sequences);
    EXPECT_GT(attention.plan().row_items.size(), 8U);
    EXPECT_GT(attention.plan().tile_items.size(), 3U);
    check(shape, sequences);
  }
}

// Windows end inside tiles and blocks; entries and slots before them are -1 and NaN.
TEST(AttentionTest, Windows) {
  for (const int window : {1, 30, 100}) {
    for (const int group : {1, 5}) {
      check({.group = group, .window = window},
            {{.context = 20}, {.context = 333, .content = 1}, {.context = 270, .count = 40, .content = 2}});
    }
  }
}

// Positions 500 to 589 with a window of 40, in runs of 256 keys: the first tokens see nothing of the second run, the
// last ones nothing of the first. As partials, and folded in turn.
TEST(AttentionTest, PartsOfWhichATokenSeesNothing) {
  for (const int num_sms : {1, 8}) {
    const AttentionShape shape{.window = 40, .num_sms = num_sms, .deterministic = true};
    const std::vector<Sequence> sequences{{.context = 590, .count = 90}};
    EXPECT_EQ(AttentionCase(shape, sequences).plan().num_partials, num_sms == 1 ? 0 : 180);
    check(shape, sequences);
  }
}

// Chunks of several tiles, from position 0 and on top of others, with decodes between them.
TEST(AttentionTest, ChunksAndDecodesTogether) {
  for (const KvElement element : {KvElement::kF16, KvElement::kInt8}) {
    check({.element = element, .head_dim = 64, .num_kv_heads = 2, .group = 4},
          {{.context = 90},
           {.context = 70, .count = 70, .content = 1},
           {.context = 1, .content = 2},
           {.context = 130, .count = 37, .content = 3},
           {.context = 17, .content = 4}});
  }
}

TEST(AttentionTest, SharedPrefixes) {
  for (const int group : {1, 6}) {
    const AttentionShape shape{.num_kv_heads = 2, .group = group};
    std::vector<Sequence> alone{{.context = 40, .content = 1}};
    for (int i = 0; i < 6; ++i) alone.push_back({.context = 300 + 13 * i});
    std::vector<Sequence> together = alone;
    for (Sequence& sequence : together) sequence.shared_keys = 288;
    const AttentionCase cascade(shape, together);
    ASSERT_EQ(cascade.plan().tile_items.size(), 1U);
    EXPECT_EQ(cascade.plan().tile_items[0].num_rows, 6);
    const AttentionCase each(shape, alone);
    EXPECT_TRUE(each.plan().tile_items.empty());
    const auto out = cascade.run();
    expect_near(out, cascade.reference(true), tolerance(shape));
    expect_near(out, each.run(), tolerance(shape));
  }
}

// What a token gets does not depend on the chunks, on who shares the step, or on how many CTAs fill the machine.
TEST(AttentionTest, DeterministicPlansGiveTheSameBits) {
  constexpr std::int32_t kLength = 590;
  for (const int window : {0, 300}) {
    for (const KvElement element : {KvElement::kBF16, KvElement::kInt8}) {
      AttentionShape shape{.element = element, .group = 6, .window = window, .num_sms = 1, .deterministic = true};
      SCOPED_TRACE(describe(shape));
      const AttentionCase whole(shape, {{.context = kLength, .count = 83}});
      EXPECT_TRUE(whole.plan().merges.empty());  // each CTA folds its runs itself
      const auto expected = whole.run();
      expect_near(expected, whole.reference(true), tolerance(shape));
      shape.num_sms = 16;
      const auto size = whole.floats_of_token();
      for (const int count : {1, 7, 22}) {
        for (const int end : {kLength, kLength - 60}) {
          const AttentionCase part(shape,
                                   {{.context = 300, .count = 2, .content = 1}, {.context = end, .count = count}});
          EXPECT_FALSE(part.plan().merges.empty());
          const auto out = part.run();
          const auto first = static_cast<std::size_t>(end - count - (kLength - 83));
          const std::vector<float> of_whole(
              expected.begin() + static_cast<std::ptrdiff_t>(first * size),
              expected.begin() + static_cast<std::ptrdiff_t>((first + static_cast<std::size_t>(count)) * size));
          EXPECT_TRUE(is_equal({out.begin() + static_cast<std::ptrdiff_t>(2 * size), out.end()}, of_whole))
              << count << " tokens up to " << end;
        }
      }
    }
  }
}

// As in a captured graph: grids for the most there can be.
TEST(AttentionTest, PaddedGridsGiveTheSameBits) {
  for (const bool deterministic : {false, true}) {
    const AttentionShape shape{.group = 4, .num_sms = 2, .deterministic = deterministic};
    const AttentionCase attention(shape, {{.context = 800}, {.context = 33, .content = 1}});
    EXPECT_TRUE(is_equal(attention.run(), attention.run(3)));
  }
}

TEST(AttentionTest, EveryOrderOfThreadsGivesTheSameBits) {
  for (const KvElement element : {KvElement::kF16, KvElement::kFp8}) {
    for (const int group : {3, 4}) {
      for (const int head_dim : {64, 256}) {
        const AttentionShape shape{.element = element, .head_dim = head_dim, .group = group};
        SCOPED_TRACE(describe(shape));
        const AttentionCase attention(shape, {{.context = 700}, {.context = 100, .count = 40, .content = 1}});
        const auto expected = attention.run();
        simt::in_every_order([&](simt::Order) { EXPECT_TRUE(is_equal(attention.run(), expected)); });
      }
    }
  }
}

TEST(AttentionTest, RefusesWhatHasNoKernel) {
  EXPECT_THROW(AttentionCase({.head_dim = 112}, {{.context = 3}}).run(), std::invalid_argument);
  EXPECT_THROW(AttentionCase({.group = 17}, {{.context = 3}}).run(), std::invalid_argument);
}

}  // namespace
}  // namespace folio::cuda
