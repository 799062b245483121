#include "client/plan/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <stdexcept>

#include "client/plan/sizes.h"
#include "client/text.h"

namespace folio::client {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB, kTiB = 1024 * kGiB;

std::uint64_t crowd_bytes(const KvShape& shape, const Crowd& crowd) {
  const KvCacheLayout layout = layout_of(shape, KvType::kF16, 16);
  return product(static_cast<std::uint64_t>(block_need(crowd, 16).all), layout.block_bytes());
}

// The example that everybody knows, by MHA and by GQA.
TEST(MemoryPlan, EightyLayersOfSixtyFourHeads) {
  const Crowd one{.users = 1, .context = 131'072}, all{.users = 32, .context = 131'072};
  const KvShape mha{80, 64, 64, 128}, gqa{80, 64, 8, 128};
  EXPECT_EQ(token_bytes(layout_of(mha, KvType::kF16, 16)), 5 * kMiB / 2);
  EXPECT_EQ(crowd_bytes(mha, one), 320 * kGiB);
  EXPECT_EQ(crowd_bytes(mha, all), 10 * kTiB);
  EXPECT_EQ(token_bytes(layout_of(gqa, KvType::kF16, 16)), 320 * kKiB);
  EXPECT_EQ(crowd_bytes(gqa, one), 40 * kGiB);
  EXPECT_EQ(crowd_bytes(gqa, all), 5 * kTiB / 4);
}

// What docs/operations.md says of the two models, and what 512 MiB hold.
TEST(MemoryPlan, OurOwnModels) {
  const KvCacheLayout smollm2 = layout_of({30, 9, 3, 64}, KvType::kF16, 16);
  EXPECT_EQ(token_bytes(smollm2), 23'040U);
  EXPECT_EQ(crowd_bytes({30, 9, 3, 64}, {.context = 8192}), 180 * kMiB);
  EXPECT_EQ(token_bytes(layout_of({18, 4, 1, 256}, KvType::kF16, 16)), 18'432U);
  EXPECT_EQ(crowd_bytes({18, 4, 1, 256}, {.context = 32'768}), 576 * kMiB);
  EXPECT_EQ(blocks_in(512 * kMiB, smollm2.block_bytes()), 1455);
  EXPECT_EQ(users_that_fit({.context = 364}, 16, 1455), 63);
  EXPECT_EQ(users_that_fit({.context = 8192}, 16, 1455), 2);
}

// A head's token in int8 is 2 * (head_dim + 4) bytes, where f16 takes 4 * head_dim.
TEST(MemoryPlan, TypesAsTheEngineStoresThem) {
  const KvShape shape{2, 4, 4, 64};
  EXPECT_EQ(token_bytes(layout_of(shape, KvType::kF32, 16)), 2U * 4 * 64 * 2 * 4);
  EXPECT_EQ(token_bytes(layout_of(shape, KvType::kF16, 32)), 2U * 4 * 64 * 2 * 2);
  EXPECT_EQ(token_bytes(layout_of(shape, KvType::kBF16, 64)), 2U * 4 * 64 * 2 * 2);
  EXPECT_EQ(token_bytes(layout_of(shape, KvType::kInt8, 16)), 2U * 4 * 2 * (64 + 4));
  EXPECT_EQ(token_bytes(layout_of({1, 3, 1, 18}, KvType::kF16, 16)), 2U * (18 + 32));  // values are padded to 16
}

TEST(BlockNeed, TheWorkedExample) {
  const Crowd crowd{.users = 3, .context = 100, .prefix_tokens = 40};
  const BlockNeed need = block_need(crowd, 16);
  EXPECT_EQ(need.a_user, 7);
  EXPECT_EQ(need.shared, 2);
  EXPECT_EQ(need.all, 2 + 3 * 5);
  EXPECT_EQ(block_need({.users = 3, .context = 100}, 16).all, 21);
  EXPECT_EQ(block_need({.users = 4, .context = 100, .prefix_tokens = 40, .prefix_share = 0.5}, 16).all,
            2 + 2 * 5 + 2 * 7);
  EXPECT_EQ(block_need({.users = 1, .context = 100, .prefix_tokens = 40, .prefix_share = 0.9}, 16).all, 7);
  for (std::int64_t part = 0; part <= 100; ++part) {
    const Crowd hundred{.users = 100, .prefix_share = static_cast<double>(part) / 100};
    EXPECT_EQ(hundred.num_sharing(), part);
  }
  // The last token is always computed, in a block of one's own.
  EXPECT_EQ(block_need({.users = 3, .context = 32, .prefix_tokens = 32}, 16).all, 1 + 3);
}

// Users as sets of the blocks that they name, one after the other, against the formula.
TEST(BlockNeed, AsCountedUserByUser) {
  std::mt19937 random(5);
  const auto pick = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 2000; ++round) {
    Crowd crowd{.users = pick(0, 20), .context = pick(1, 200)};
    crowd.prefix_tokens = pick(0, crowd.context - 1);
    crowd.prefix_share = static_cast<double>(pick(0, 8)) / 8;
    const std::int32_t block_size = 16 << pick(0, 2);
    std::set<std::pair<std::int64_t, std::int64_t>> blocks;  // owner, number; owner -1: all who share
    for (std::int64_t user = 0; user < crowd.users; ++user) {
      for (std::int64_t first = 0; first < crowd.context; first += block_size) {
        const bool shared = user < crowd.num_sharing() && first + block_size <= crowd.prefix_tokens;
        blocks.emplace(shared ? -1 : user, first);
      }
    }
    const std::int64_t all = block_need(crowd, block_size).all;
    EXPECT_EQ(all, std::ssize(blocks)) << crowd.users << " " << crowd.context << " " << crowd.prefix_tokens;

    const std::int64_t pool = pick(0, 300);
    const std::int64_t most = users_that_fit(crowd, block_size, pool);
    Crowd other = crowd;
    other.users = most;
    EXPECT_LE(block_need(other, block_size).all, pool);
    other.users = most + 1;
    EXPECT_GT(block_need(other, block_size).all, pool);
    if (crowd.users == 0) continue;
    other = crowd;
    other.context = context_that_fits(crowd, block_size, pool) + 1;
    EXPECT_GT(block_need(other, block_size).all, pool);
    if (--other.context == 0) continue;
    EXPECT_LE(block_need(other, block_size).all, pool);
  }
}

TEST(MemoryPlan, TheLargestNumbersEndInAnErrorAndNotInNonsense) {
  constexpr std::int32_t kMost = KvShape::kMost;
  const KvCacheLayout layout = layout_of({kMost, kMost, kMost, kMost}, KvType::kF32, 256);
  EXPECT_EQ(layout.block_bytes(), 2ULL * kMost * kMost * kMost * 256 * 4);
  const BlockNeed need = block_need({.users = Crowd::kMost, .context = Crowd::kMost}, 16);
  EXPECT_EQ(need.all, Crowd::kMost / 16 * Crowd::kMost);
  EXPECT_THROW(product(static_cast<std::uint64_t>(need.all), layout.block_bytes()), std::overflow_error);
  EXPECT_EQ(blocks_in(1, layout.block_bytes()), 0);
}

TEST(Sizes, Words) {
  EXPECT_EQ(size_text(0), "0 B");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text(23'040), "22.5 KiB");
  EXPECT_EQ(size_text(5 * kMiB / 2), "2.5 MiB");
  EXPECT_EQ(size_text(10 * kTiB), "10 TiB");
  EXPECT_EQ(size_text(5 * kTiB / 4), "1.25 TiB");
  EXPECT_EQ(size_text(kGiB - 1), "1 GiB");
  EXPECT_EQ(size_text(~0ULL), "16 EiB");
  EXPECT_EQ(count_text(131'072), "131,072");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(-1'000), "-1,000");
}

TEST(Sizes, Parsed) {
  EXPECT_EQ(parse_size("2GiB", "--memory"), 2 * kGiB);
  EXPECT_EQ(parse_size("1.5 TiB", "--memory"), 3 * kTiB / 2);
  EXPECT_EQ(parse_size("4096", "--memory"), 4096U);
  EXPECT_EQ(parse_size("7B", "--memory"), 7U);
  for (const char* bad : {"", "GiB", "0", "-1GiB", "2GB", "2 GiBs", "1e3MiB", "nan", "inf", "99999999999TiB", "0.1B"}) {
    try {
      parse_size(bad, "--memory");
      ADD_FAILURE() << bad;
    } catch (const std::runtime_error& refusal) {
      EXPECT_EQ(std::string(refusal.what()).substr(0, 9), "--memory:") << bad;
    }
  }
}

}  // namespace
}  // namespace folio::client
