#include "engine/kernels/cuda/blas_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace folio::cuda {
namespace {

// The library's product, done by its own definition on column-major arrays, is the row-major one.
TEST(BlasPlan, ColumnMajorProductIsTheRowMajorOne) {
  const MatmulShape shape{3, 5, 7};
  std::mt19937 random(1);
  std::vector<int> x(3 * 7);
  std::vector<int> weights(5 * 7);
  for (int& value : x) value = static_cast<int>(random() % 19) - 9;
  for (int& value : weights) value = static_cast<int>(random() % 19) - 9;
  const ColumnMajorProduct as = column_major(shape);
  ASSERT_EQ(as.m * as.n, 3 * 5);
  std::vector<int> d(3 * 5, -1);
  for (std::int64_t i = 0; i < as.m; ++i) {
    for (std::int64_t j = 0; j < as.n; ++j) {
      int sum = 0;
      // a is k by m and transposed, b is k by n.
      for (std::int64_t l = 0; l < as.k; ++l) {
        sum += weights[static_cast<std::size_t>(l + i * as.lda)] * x[static_cast<std::size_t>(l + j * as.ldb)];
      }
      d[static_cast<std::size_t>(i + j * as.ldd)] = sum;
    }
  }
  for (std::size_t row = 0; row < 3; ++row) {
    for (std::size_t column = 0; column < 5; ++column) {
      int sum = 0;
      for (std::size_t k = 0; k < 7; ++k) sum += x[row * 7 + k] * weights[column * 7 + k];
      EXPECT_EQ(d[row * 5 + column], sum) << row << ' ' << column;
    }
  }
}

TEST(BlasPlan, BucketsHoldTheirRowsAndAreFew) {
  std::set<std::int32_t> buckets;
  std::int32_t last = 0;
  for (std::int32_t rows = 1; rows <= 8192; ++rows) {
    const std::int32_t bucket = rows_bucket(rows, false);
    EXPECT_GE(bucket, rows);
    EXPECT_GE(bucket, last);
    EXPECT_EQ(rows_bucket(bucket, false), bucket);
    if (rows > 16) {
      EXPECT_LT(bucket, rows <= 256 ? 2 * rows : rows + 256) << rows;
    }
    buckets.insert(bucket);
    last = bucket;
  }
  EXPECT_EQ(buckets.size(), 5U + 31U);  // 16, 32 .. 256; 512, 768 .. 8192
  EXPECT_EQ(*buckets.begin(), 16);
}

TEST(BlasPlan, DeterministicHasOneAlgorithmForAllRowCounts) {
  const AlgorithmKey key = algorithm_key({1, 4096, 14336}, false, true);
  for (const std::int32_t rows : {2, 16, 17, 300, 8192}) {
    EXPECT_EQ(algorithm_key({rows, 4096, 14336}, false, true), key) << rows;
  }
  EXPECT_NE(algorithm_key({1, 4097, 14336}, false, true), key);
  EXPECT_NE(algorithm_key({1, 4096, 14344}, false, true), key);
  EXPECT_NE(algorithm_key({1, 4096, 14336}, true, true), key);
}

TEST(BlasPlan, KeysTellBucketsApart) {
  EXPECT_EQ(algorithm_key({3, 64, 32}, false, false), algorithm_key({16, 64, 32}, false, false));
  EXPECT_NE(algorithm_key({16, 64, 32}, false, false), algorithm_key({17, 64, 32}, false, false));
  EXPECT_NE(algorithm_key({3, 64, 32}, false, false), algorithm_key({3, 64, 32}, true, false));
  EXPECT_NE(algorithm_key({3, 64, 32}, false, false), algorithm_key({3, 32, 64}, false, false));
}

TEST(BlasPlan, OnlyOneSequenceMayRunDeterministically) {
  const std::size_t room = blas_workspace_bytes(9);
  EXPECT_EQ(room, 32U << 20U);
  EXPECT_EQ(blas_workspace_bytes(8), 4U << 20U);
  EXPECT_TRUE(may_run({1, 0, room}, room, true));
  EXPECT_TRUE(may_run({4, 2, 1024}, room, false));
  EXPECT_FALSE(may_run({4, 0, 1024}, room, true));
  EXPECT_FALSE(may_run({1, 1, 1024}, room, true));
  EXPECT_FALSE(may_run({1, 0, room + 1}, room, true));
  EXPECT_FALSE(may_run({1, 0, room + 1}, room, false));
}

}  // namespace
}  // namespace folio::cuda
