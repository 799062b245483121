// The cache's layout, and what a write, a copy and a fill leave in it, for every KV type and level.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/engine/kernels/attention_runner.h"
#include "tests/engine/kernels/kv_reader.h"
#include "tests/engine/kernels/levels.h"

namespace folio::cpu {
namespace {

TEST(KvCacheLayout, SaysWhatATokenOfAHeadTakes) {
  for (const int block_size : {16, 64}) {
    KvCacheLayout layout{2, 3, 64, block_size, 5, KvType::kF16};
    const auto token_bytes = [&](KvType type, int dim) {
      layout.type = type;
      layout.head_dim = dim;
      EXPECT_EQ(layout.head_bytes() % static_cast<std::size_t>(block_size), 0U);
      EXPECT_EQ(layout.total_bytes(), layout.head_bytes() * 2 * 3 * 6);
      return layout.head_bytes() / static_cast<std::size_t>(block_size);
    };
    for (const int dim : {64, 128, 256}) {
      EXPECT_EQ(token_bytes(KvType::kF16, dim), static_cast<std::size_t>(4 * dim));
      EXPECT_EQ(token_bytes(KvType::kBF16, dim), static_cast<std::size_t>(4 * dim));
      EXPECT_EQ(token_bytes(KvType::kF32, dim), static_cast<std::size_t>(8 * dim));
      EXPECT_EQ(token_bytes(KvType::kInt8, dim), static_cast<std::size_t>(2 * dim + 8));
    }
    // K padded to a pair or a four, V to 16.
    EXPECT_EQ(token_bytes(KvType::kF16, 7), 2U * (7 + 16));
    EXPECT_EQ(token_bytes(KvType::kBF16, 7), 2U * (8 + 16));
    EXPECT_EQ(token_bytes(KvType::kInt8, 7), 8U + 16U + 8U);
  }
}

TEST(KvCacheLayout, GroupsTileTheCacheWithoutOverlap) {
  for (const KvType type : kAllKvTypes) {
    const KvCacheLayout l{2, 2, 18, 32, 3, type};
    std::size_t next = 0;
    for (int layer = 0; layer < 2; ++layer) {
      for (BlockId block = 0; block <= 3; ++block) {
        for (int head = 0; head < 2; ++head) {
          for (int g = 0; g < 2; ++g, next += l.key_group_bytes()) {
            EXPECT_EQ(l.key_group_offset(layer, block, head, g), next) << name_of(type);
          }
          for (int g = 0; g < 2; ++g, next += l.value_group_bytes()) {
            EXPECT_EQ(l.value_group_offset(layer, block, head, g), next) << name_of(type);
          }
        }
      }
    }
    EXPECT_EQ(next, l.total_bytes()) << name_of(type);
  }
}

void for_all_elements(const KvCache& cache, const auto& visit) {
  const KvCacheLayout& l = cache.layout();
  for (int layer = 0; layer < l.num_layers; ++layer) {
    for (BlockId block = 0; block <= l.num_blocks; ++block) {
      for (int head = 0; head < l.num_kv_heads; ++head) {
        for (int slot = 0; slot < l.block_size; ++slot) {
          for (int d = 0; d < l.head_dim; ++d) {
            visit(cached_key(cache, layer, block, head, slot, d));
            visit(cached_value(cache, layer, block, head, slot, d));
          }
        }
      }
    }
  }
}

TEST(KvCacheMemory, ZeroedIsZeroAndPoisonIsTheValue) {
  ThreadPool pool(1);
  for (const KvType type : kAllKvTypes) {
    KvCache cache({2, 2, 18, 32, 3, type}, pool);
    for_all_elements(cache, [](double x) { ASSERT_EQ(x, 0.0); });
    for (const float value : {30000.0F, -2.5F, 0.0F}) {
      cache.fill(value);
      for_all_elements(cache, [&](double x) { ASSERT_NEAR(x, value, 0.004 * std::fabs(value)) << name_of(type); });
    }
  }
}

TEST(KvCacheMemory, CopyTakesAllLayersOfABlockAndNothingElse) {
  ThreadPool pool(1);
  std::mt19937 random(5);
  for (const KvType type : kAllKvTypes) {
    KvCache cache({3, 2, 24, 32, 4, type}, pool);
    const KvCacheLayout& l = cache.layout();
    std::vector<std::byte> before(l.total_bytes());
    for (std::byte& b : before) b = static_cast<std::byte>(random());
    std::memcpy(cache.data(), before.data(), before.size());
    cache.copy_block(4, 1);
    for (int layer = 0; layer < 3; ++layer) {
      for (BlockId block = 0; block <= 4; ++block) {
        EXPECT_EQ(
            std::memcmp(cache.data() + l.head_offset(layer, block, 0),
                        before.data() + l.head_offset(layer, block == 1 ? 4 : block, 0), l.block_bytes_per_layer()),
            0)
            << name_of(type) << " layer " << layer << " block " << block;
      }
    }
  }
}

constexpr int kDim = 22;  // fills no vector and no four

// One token's row written at a lane of a cache of zeros, read back.
class KvWrites : public testing::TestWithParam<std::string> {
 protected:
  struct Row {
    std::vector<double> k, v;
  };
  Row write(KvType type, const std::vector<float>& k, const std::vector<float>& v, int lane) {
    KvCache cache({1, 1, kDim, 16, 1, type}, pool_);
    const KvCacheLayout& l = cache.layout();
    const KvSlot slot{cache.data() + l.key_group_offset(0, 1, 0, 0),
                      cache.data() + l.value_group_offset(0, 1, 0, 0),
                      l.key_scales_at(),
                      l.value_scales_at(),
                      l.padded_dim(),
                      lane};
    select_kernels(GetParam()).write_kv[static_cast<int>(type)](k.data(), v.data(), kDim, slot);
    Row row;
    for (int other = 0; other < 16; ++other) {
      for (int d = 0; d < kDim; ++d) {
        const double key = cached_key(cache, 0, 1, 0, other, d);
        const double value = cached_value(cache, 0, 1, 0, other, d);
        if (other == lane) {
          row.k.push_back(key);
          row.v.push_back(value);
        } else {
          EXPECT_EQ(key, 0.0) << name_of(type) << " lane " << other << " was touched";
          EXPECT_EQ(value, 0.0) << name_of(type) << " lane " << other << " was touched";
        }
      }
    }
    return row;
  }

 private:
  ThreadPool pool_{1};
};

// The nearest that the type holds: float types by their rounding, int8 within half a step of its row's largest / 127.
void expect_nearest(KvType type, const std::vector<float>& row, const std::vector<double>& stored, const char* what) {
  double largest = 0;
  for (const float x : row) largest = std::max(largest, std::fabs(static_cast<double>(x)));
  for (std::size_t d = 0; d < row.size(); ++d) {
    const auto x = static_cast<double>(row[d]);
    double expected = x;
    double tolerance = 0;
    if (type == KvType::kF16) expected = static_cast<double>(half_to_float(float_to_half(row[d])));
    if (type == KvType::kBF16 && x != 0) {
      const double step = std::ldexp(1.0, std::ilogb(x) - 7);
      expected = std::nearbyint(x / step) * step;  // to nearest even
    }
    if (type == KvType::kInt8) tolerance = largest / 127 * 0.50001;
    EXPECT_NEAR(stored[d], expected, tolerance) << name_of(type) << " " << what << " dim " << d;
  }
  if (type == KvType::kInt8) {
    double most = 0;
    for (const double x : stored) most = std::max(most, std::fabs(x));
    EXPECT_NEAR(most, largest, 1e-6 * largest) << what << ": the scale is not of this row's largest";
  }
}

TEST_P(KvWrites, RoundToTheNearestOfTheRowAlone) {
  std::mt19937 random(9);
  for (const KvType type : kAllKvTypes) {
    for (const int lane : {0, 1, 5, 14, 15}) {
      std::normal_distribution<float> small(0.0F, 0.05F);
      std::normal_distribution<float> large(0.0F, 40.0F);
      std::vector<float> k(kDim);
      std::vector<float> v(kDim);
      for (float& x : k) x = large(random);
      for (float& x : v) x = small(random);
      k[3] = 1.00390625F;  // halfway between two bf16
      k[4] = -1.01171875F;
      const Row row = write(type, k, v, lane);
      expect_nearest(type, k, row.k, "K");
      expect_nearest(type, v, row.v, "V");
    }
  }
}

TEST_P(KvWrites, AreFiniteWhateverComes) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> rows[] = {std::vector<float>(kDim, 0.0F),    std::vector<float>(kDim, nan),
                                     std::vector<float>(kDim, inf),     std::vector<float>(kDim, -inf),
                                     std::vector<float>(kDim, 3.4e38F), std::vector<float>(kDim, 1e-40F),
                                     std::vector<float>(kDim, 1e-30F)};
  for (const KvType type : kAllKvTypes) {
    for (std::vector<float> k : rows) {
      for (const float odd : {0.0F, nan, inf, -inf, -3.4e38F, 70000.0F, 1e-45F}) {
        k[17] = odd;
        const Row row = write(type, k, k, 6);
        for (int d = 0; d < kDim; ++d) {
          const auto i = static_cast<std::size_t>(d);
          ASSERT_TRUE(std::isfinite(row.k[i]) && std::isfinite(row.v[i])) << name_of(type) << " of " << k[i];
          ASSERT_TRUE(k[i] != 0.0F || (row.k[i] == 0.0 && row.v[i] == 0.0)) << name_of(type);
        }
      }
    }
    const Row clamped = write(type, std::vector<float>(kDim, inf), std::vector<float>(kDim, -3.4e38F), 2);
    const double most = type == KvType::kF16 || type == KvType::kInt8 ? 65504.0 : 3.0e38;
    EXPECT_NEAR(clamped.k[0] / most, 1.0, 0.01) << name_of(type);
    EXPECT_NEAR(clamped.v[0] / most, -1.0, 0.01) << name_of(type);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, KvWrites, testing::ValuesIn(levels_outside_attention()),
                         [](const auto& level) { return level.param; });

// Copies of a step run in order (2 is filled from 1, then 3 from 2), before the step writes into 1.
TEST(BlockCopies, RunInOrderAndBeforeAnythingIsWritten) {
  std::mt19937 random(11);
  for (const KvType type : kAllKvTypes) {
    const Shape shape{{2, 1, 24}, type, 16, 0};
    CpuBackend backend("auto", 2, shape.attention, {2, 1, 24, 16, 3, type});
    const KvCache& cache = backend.cache();
    const KvCacheLayout& l = cache.layout();
    const auto block = [&](int layer, BlockId id) {
      const std::byte* begin = cache.data() + l.head_offset(layer, id, 0);
      return std::vector<std::byte>(begin, begin + l.block_bytes_per_layer());
    };
    const std::vector<float> still(12, 0.0F);
    const Rope rope{24, false, still.data()};
    const auto write = [&](int count, std::vector<BlockCopy> copies) {
      StepBatch batch;
      batch.clear();
      for (int p = 0; p < count; ++p) {
        batch.tokens.push_back(0);
        batch.positions.push_back(p);
        batch.slots.push_back(16 + p);
      }
      batch.query_start.push_back(count);
      batch.context_len.push_back(count);
      batch.block_ids.push_back(1);
      batch.block_start.push_back(1);
      batch.copies = std::move(copies);
      Sequence s = make_sequence(shape, count, random);
      backend.begin_step(batch, {&rope, 1});
      for (int layer = 0; layer < 2; ++layer) {
        backend.rope_write_kv(layer, 0, {}, {}, 1.0F, s.q.data(), s.k.data(), s.v.data());
      }
    };
    write(16, {});
    const std::vector<std::byte> old[] = {block(0, 1), block(1, 1)};
    write(1, {{1, 2}, {2, 3}});
    for (int layer = 0; layer < 2; ++layer) {
      EXPECT_NE(block(layer, 1), old[layer]) << name_of(type);
      EXPECT_EQ(block(layer, 2), old[layer]) << name_of(type);
      EXPECT_EQ(block(layer, 3), old[layer]) << name_of(type);
    }
  }
}

}  // namespace
}  // namespace folio::cpu
