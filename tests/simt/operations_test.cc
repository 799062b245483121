// The twin's operations against plain versions written from their documents.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tests/simt/device_buffer.h"
#include "tests/simt/operations_kernels.h"

namespace folio::cuda {
namespace {

using simt::DeviceBuffer;

template <class T>
class ProductTest : public ::testing::Test {};
using Elements = ::testing::Types<__half, __nv_bfloat16>;
TYPED_TEST_SUITE(ProductTest, Elements);

TYPED_TEST(ProductTest, IsThePlainProduct) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<TypeParam> a(16 * 16);
    std::vector<TypeParam> b(16 * 8);
    std::vector<float> sums(16 * 8);
    for (TypeParam& x : a) x = TypeParam(normal(random));
    for (TypeParam& x : b) x = TypeParam(normal(random));
    for (float& x : sums) x = normal(random);
    simt::in_every_order([&](simt::Order) {
      const DeviceBuffer<TypeParam> device_a(a);
      const DeviceBuffer<TypeParam> device_b(b);
      const DeviceBuffer<float> device_sums(sums);
      DeviceBuffer<float> products(16 * 8);
      small_product(device_a.data(), device_b.data(), device_sums.data(), products.data());
      for (std::size_t row = 0; row < 16; ++row) {
        for (std::size_t column = 0; column < 8; ++column) {
          float expected = sums[row * 8 + column];
          for (std::size_t k = 0; k < 16; ++k) {
            expected += static_cast<float>(a[row * 16 + k]) * static_cast<float>(b[k * 8 + column]);
          }
          ASSERT_EQ(products[row * 8 + column], expected) << row << " " << column;
        }
      }
    });
  }
}

TEST(OperationsTest, ValuesGoBetweenLanes) {
  simt::in_every_order([&](simt::Order) {
    constexpr int kThreads = 96;
    for (int operation = 0; operation < 5; ++operation) {
      DeviceBuffer<std::int64_t> results(kThreads);
      exchange_values(operation, kThreads, results.data());
      for (int i = 0; i < kThreads; ++i) {
        const int lane = i % 32;
        const int warp = i - lane;
        std::int64_t votes = 0;
        for (int other = 0; other < 32; ++other) votes += (warp + other) % 3 == 0 ? std::int64_t{1} << other : 0;
        const std::int64_t expected[] = {warp + 6, warp + (lane ^ 3) + 1, lane < 2 ? i + 1 : i - 1,
                                         warp + (lane + 1) % 32 + 1, votes};
        ASSERT_EQ(results[static_cast<std::size_t>(i)], expected[operation]) << operation << " " << i;
      }
    }
  });
}

TEST(OperationsTest, SumsOverACta) {
  std::vector<float> values(5 * 64);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  simt::in_every_order([&](simt::Order) {
    const DeviceBuffer<float> device_values(values);
    DeviceBuffer<float> sums(5);
    sum_values(device_values.data(), 5, sums.data());
    for (std::size_t cta = 0; cta < 5; ++cta) {
      EXPECT_EQ(sums[cta], 64 * 64 * static_cast<float>(cta) + 63 * 32);
    }
  });
}

TEST(OperationsTest, DotsOfSignedBytes) {
  const std::vector<std::uint32_t> a{0x80808080U, 0x01020304U, 0xff000000U};
  const std::vector<std::uint32_t> b{0x80808080U, 0x7f80ff01U, 0x03ffffffU};
  const std::vector<int> sums{1, -2, 10};
  const DeviceBuffer<std::uint32_t> device_a(a);
  const DeviceBuffer<std::uint32_t> device_b(b);
  const DeviceBuffer<int> device_sums(sums);
  DeviceBuffer<int> results(3);
  dots(device_a.data(), device_b.data(), device_sums.data(), 3, results.data());
  EXPECT_EQ(results.to_vector(), (std::vector<int>{4 * 128 * 128 + 1, 127 - 256 - 3 + 4 - 2, 7}));
}

TEST(OperationsTest, CopiesThatAreNotValidWriteZeros) {
  simt::in_every_order([&](simt::Order) {
    std::vector<std::uint32_t> words(11 * 4);
    for (std::size_t i = 0; i < words.size(); ++i) words[i] = static_cast<std::uint32_t>(i) + 1;
    const DeviceBuffer<std::uint32_t> from(words);
    DeviceBuffer<std::uint32_t> to(32 * 4);
    copy_through_shared(from.data(), 11, to.data());
    for (std::size_t i = 0; i < 32; ++i) {
      for (std::size_t word = 0; word < 4; ++word) {
        const std::size_t source = (31 - i) * 4 + word;
        EXPECT_EQ(to[i * 4 + word], source < words.size() ? words[source] : 0);
      }
    }
  });
}

TEST(OperationsTest, MatricesAsTheyAreLoaded) {
  std::vector<std::uint16_t> matrices(4 * 8 * 8);
  for (std::size_t i = 0; i < matrices.size(); ++i) matrices[i] = static_cast<std::uint16_t>(i * 257);
  for (const bool transposed : {false, true}) {
    const DeviceBuffer<std::uint16_t> from(matrices);
    DeviceBuffer<std::uint32_t> m(32 * 4);
    loaded_matrices(from.data(), transposed, m.data());
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t i = 0; i < 4; ++i) {
        for (std::size_t half = 0; half < 2; ++half) {
          const std::size_t line = lane / 4;
          const std::size_t along = lane % 4 * 2 + half;
          const std::size_t element = transposed ? along * 8 + line : line * 8 + along;
          ASSERT_EQ(m[4 * lane + i] >> 16 * half & 0xffff, matrices[i * 64 + element]) << lane << " " << i;
        }
      }
    }
  }
}

TEST(OperationsTest, PiecesOfSharedMemoryAreApart) {
  DeviceBuffer<int> how(5);
  fill_pieces(how.data());
  EXPECT_EQ(how.to_vector(), std::vector<int>(5, 0));
}

TEST(OperationsTest, Exp2) {
  for (const float x : {0.0F, 1.0F, -0.75F, -100.5F, 3.25F})
    EXPECT_NEAR(exp2_fast(x), std::exp2(x), 1e-6 * std::exp2(x));
  EXPECT_EQ(exp2_fast(-INFINITY), 0.0F);
  EXPECT_EQ(exp2_fast(-127.0F), 0.0F);
}

}  // namespace
}  // namespace folio::cuda
