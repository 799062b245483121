#include "engine/kernels/cuda/rope_kv.h"

#include <set>

#include "tests/simt/row_checks.h"

namespace folio::cuda {
namespace {

using simt::DeviceBuffer;

// The CPU's rule, to the bit: the angle as a float, its cosine and sine in double.
TEST(MakeAnglesTest, AreTheCpus) {
  std::vector<std::int32_t> positions{0, 1, 2, 3, 100, 4095, 8191, 131071, 1000003, (1 << 26) - 1, 1 << 26};
  std::mt19937 random(1);
  for (int i = 0; i < 400; ++i) positions.push_back(static_cast<std::int32_t>(random() >> (6U + random() % 24U)));
  std::vector<float> frequencies{1.0F, 2.5F, 1e6F};  // a factor may be small
  for (int i = 0; i < 32; ++i) frequencies.push_back(static_cast<float>(std::pow(1e5, -2.0 * i / 64)));
  const DeviceBuffer<std::int32_t> device_positions(positions);
  const DeviceBuffer<float> device_frequencies(frequencies);
  DeviceBuffer<float2> angles(positions.size() * frequencies.size());
  make_angles({device_positions.data(), device_frequencies.data(), static_cast<std::int32_t>(frequencies.size()),
               angles.data()},
              static_cast<std::int32_t>(positions.size()), nullptr);
  for (std::size_t p = 0; p < positions.size(); ++p) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const float angle = static_cast<float>(positions[p]) * frequencies[i];
      const float2 got = angles[p * frequencies.size() + i];
      ASSERT_EQ(got.x, static_cast<float>(std::cos(static_cast<double>(angle)))) << positions[p] << " " << i;
      ASSERT_EQ(got.y, static_cast<float>(std::sin(static_cast<double>(angle)))) << positions[p] << " " << i;
    }
  }
}

struct Shape {
  std::int32_t num_heads, num_kv_heads, head_dim, rotary_dim;
  bool interleaved;
  bool normed;
  std::int32_t stored_dim = 0;  // in the cache; 0: head_dim
};

// Positions, and slots in blocks out of order; the fourth token is not written.
const std::vector<std::int32_t> kPositions{0, 77, 8190, 5, 131071};
const std::vector<std::int32_t> kSlots{17, 16 * 3 + 15, 16, -1, 16 * 2};
constexpr float kQueryScale = 0.18F;

std::vector<double> rotated(const float* head, const Shape& shape, const std::vector<float>& weight,
                            const float2* angles) {
  const auto dim = static_cast<std::size_t>(shape.head_dim);
  std::vector<double> row(head, head + dim);
  if (shape.normed) {
    double squares = 0;
    for (const double value : row) squares += value * value;
    const double factor = 1 / std::sqrt(squares / shape.head_dim + 1e-6);
    for (std::size_t d = 0; d < dim; ++d) row[d] *= factor * static_cast<double>(weight[d]);
  }
  const auto half = static_cast<std::size_t>(shape.rotary_dim / 2);
  for (std::size_t i = 0; i < half; ++i) {
    double& a = row[shape.interleaved ? 2 * i : i];
    double& b = row[shape.interleaved ? 2 * i + 1 : i + half];
    const double c = static_cast<double>(angles[i].x);
    const double s = static_cast<double>(angles[i].y);
    const double first = a * c - b * s;
    b = a * s + b * c;
    a = first;
  }
  return row;
}

float element_at(const KvLayout& layout, const std::uint8_t* row, std::size_t d) {
  switch (layout.element) {
    case KvElement::kF16:
      return __half2float(reinterpret_cast<const __half*>(row)[d]);
    case KvElement::kBF16:
      return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[d]);
    case KvElement::kInt8:
      return static_cast<float>(static_cast<std::int8_t>(row[d]));
    case KvElement::kFp8:
      return static_cast<float>(reinterpret_cast<const __nv_fp8_e4m3*>(row)[d]);
  }
  return NAN;
}

// A row of the cache is `expected` within the rounding of its type.
void expect_row(const KvLayout& layout, const std::uint8_t* head, std::size_t row_at, std::size_t scale_at,
                const std::vector<double>& expected) {
  double scale = 1;
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::fabs(value));
  if (layout.has_scales()) {
    scale = static_cast<double>(*reinterpret_cast<const float*>(head + scale_at));
    const double steps = layout.element == KvElement::kInt8 ? 127 : 448;
    ASSERT_NEAR(scale, largest / steps, 1e-5 * largest / steps);
  }
  for (auto d = expected.size(); d < static_cast<std::size_t>(layout.head_dim); ++d) {
    ASSERT_EQ(element_at(layout, head + row_at, d), 0.0F) << d;
  }
  for (std::size_t d = 0; d < expected.size(); ++d) {
    const double got = scale * static_cast<double>(element_at(layout, head + row_at, d));
    const double magnitude = std::fabs(expected[d]);
    const double rounding = layout.element == KvElement::kF16    ? std::max(magnitude * 0x1p-11, 0x1p-25)
                            : layout.element == KvElement::kBF16 ? magnitude * 0x1p-8
                            : layout.element == KvElement::kInt8 ? 0.5 * scale
                                                                 : std::max(magnitude * 0x1p-4, scale * 0x1p-10);
    ASSERT_NEAR(got, expected[d], 1.001 * rounding + 2e-6 * largest) << d;
  }
}

class RopeWrite {
 public:
  RopeWrite(const Shape& shape, KvElement element)
      : shape_(shape),
        layout_{.num_layers = 3,
                .num_kv_heads = shape.num_kv_heads,
                .head_dim = shape.stored_dim > 0 ? shape.stored_dim : shape.head_dim,
                .num_blocks = 3,
                .element = element},
        q_(normal_floats(rows(shape.num_heads), 1)),
        k_(normal_floats(rows(shape.num_kv_heads), 2)),
        v_(normal_floats(rows(shape.num_kv_heads), 3, 5.0F)),
        q_weight_(normal_floats(static_cast<std::size_t>(shape.head_dim), 4)),
        k_weight_(normal_floats(static_cast<std::size_t>(shape.head_dim), 5)) {
    for (std::int32_t i = 0; i < shape.rotary_dim / 2; ++i) {
      frequencies_.push_back(static_cast<float>(std::pow(1e4, -2.0 * i / shape.rotary_dim)));
    }
  }

  void check() {
    std::vector<float> first_q;
    std::vector<std::uint8_t> first_cache;
    simt::in_every_order([&](simt::Order) {
      DeviceBuffer<float> q(q_);
      DeviceBuffer<std::uint8_t> cache(layout_.total_bytes());
      run(q, cache);
      check_queries(q);
      check_cache(cache);
      if (first_q.empty()) {
        first_q = q.to_vector();
        first_cache = cache.to_vector();
      }
      EXPECT_EQ(q.to_vector(), first_q);
      EXPECT_TRUE(cache.to_vector() == first_cache);
    });
  }

 private:
  static constexpr std::int32_t kLayer = 1;
  std::size_t rows(std::int32_t heads) const {
    return kSlots.size() * static_cast<std::size_t>(heads) * static_cast<std::size_t>(shape_.head_dim);
  }

  void run(DeviceBuffer<float>& q, DeviceBuffer<std::uint8_t>& cache) {
    const DeviceBuffer<std::int32_t> positions(kPositions);
    const DeviceBuffer<std::int32_t> slots(kSlots);
    const DeviceBuffer<float> frequencies(frequencies_);
    const DeviceBuffer<float> k(k_);
    const DeviceBuffer<float> v(v_);
    const DeviceBuffer<float> q_weight(q_weight_);
    const DeviceBuffer<float> k_weight(k_weight_);
    DeviceBuffer<float2> angles(kSlots.size() * frequencies_.size());
    const auto num_tokens = static_cast<std::int32_t>(kSlots.size());
    make_angles({positions.data(), frequencies.data(), shape_.rotary_dim / 2, angles.data()}, num_tokens, nullptr);
    RopeWriteKv work{.layout = layout_, .cache = cache.data(), .layer = kLayer, .num_heads = shape_.num_heads};
    work.head_dim = shape_.head_dim;
    work.rotary_dim = shape_.rotary_dim;
    work.interleaved = shape_.interleaved;
    work.angles = angles.data();
    work.slots = slots.data();
    if (shape_.normed) {
      work.q_norm = {q_weight.data(), 1e-6F};
      work.k_norm = {k_weight.data(), 1e-6F};
    }
    work.query_scale = kQueryScale;
    work.q = q.data();
    work.k = k.data();
    work.v = v.data();
    rope_write_kv(work, num_tokens, nullptr);
    angles_ = angles.to_vector();
  }

  const float2* angles_of(std::size_t token) const { return angles_.data() + token * frequencies_.size(); }

  void check_queries(const DeviceBuffer<float>& q) const {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    const auto heads = static_cast<std::size_t>(shape_.num_heads);
    for (std::size_t row = 0; row < kSlots.size() * heads; ++row) {
      const std::vector<double> expected = rotated(q_.data() + row * dim, shape_, q_weight_, angles_of(row / heads));
      for (std::size_t d = 0; d < dim; ++d) {
        ASSERT_NEAR(static_cast<double>(q[row * dim + d]), static_cast<double>(kQueryScale) * expected[d], 2e-6);
      }
    }
  }

  // Every slot's rows, and not a byte elsewhere.
  void check_cache(const DeviceBuffer<std::uint8_t>& cache) const {
    const auto dim = static_cast<std::size_t>(shape_.head_dim);
    std::vector<std::uint8_t> rest = cache.to_vector();
    for (std::size_t token = 0; token < kSlots.size(); ++token) {
      if (kSlots[token] < 0) continue;
      for (std::int32_t h = 0; h < shape_.num_kv_heads; ++h) {
        const std::size_t at = layout_.head_offset(kLayer, kSlots[token] / 16, h);
        const std::int32_t offset = kSlots[token] % 16;
        const std::size_t row =
            (token * static_cast<std::size_t>(shape_.num_kv_heads) + static_cast<std::size_t>(h)) * dim;
        expect_row(layout_, cache.data() + at, layout_.key_row(offset), layout_.key_scale(offset),
                   rotated(k_.data() + row, shape_, k_weight_, angles_of(token)));
        expect_row(layout_, cache.data() + at, layout_.value_row(offset), layout_.value_scale(offset),
                   {v_.data() + row, v_.data() + row + dim});
        const auto clear = [&](std::size_t from, std::size_t bytes) {
          std::fill_n(rest.begin() + static_cast<std::ptrdiff_t>(at + from), bytes, std::uint8_t{0xff});
        };
        clear(layout_.key_row(offset), layout_.row_bytes());
        clear(layout_.value_row(offset), layout_.row_bytes());
        if (layout_.has_scales()) {
          clear(layout_.key_scale(offset), 4);
          clear(layout_.value_scale(offset), 4);
        }
      }
    }
    EXPECT_TRUE(std::all_of(rest.begin(), rest.end(), [](std::uint8_t byte) { return byte == 0xff; }));
  }

  const Shape shape_;
  const KvLayout layout_;
  const std::vector<float> q_, k_, v_, q_weight_, k_weight_;
  std::vector<float> frequencies_;
  std::vector<float2> angles_;
};

TEST(RopeWriteKvTest, EveryTypeHeadSizeAndOrder) {
  const Shape shapes[] = {
      {9, 3, 64, 64, false, false}, {4, 1, 256, 256, false, true},   {5, 5, 80, 80, false, false},
      {6, 2, 96, 96, true, true},   {8, 2, 128, 64, false, true},    {3, 1, 64, 48, true, false},
      {2, 1, 16, 2, false, false},  {8, 2, 32, 32, false, true, 64}, {3, 1, 112, 64, true, false, 128}};
  for (const Shape& shape : shapes) {
    for (const KvElement element : {KvElement::kF16, KvElement::kBF16, KvElement::kInt8, KvElement::kFp8}) {
      SCOPED_TRACE(::testing::Message() << "head size " << shape.head_dim << ", element " << static_cast<int>(element));
      RopeWrite(shape, element).check();
    }
  }
}

// What the cache holds is finite: NaN is the lower bound, and what is far is the bound.
TEST(RopeWriteKvTest, WhatIsWrittenIsFinite) {
  for (const KvElement element : {KvElement::kF16, KvElement::kBF16, KvElement::kInt8, KvElement::kFp8}) {
    const KvLayout layout{.num_layers = 1, .num_kv_heads = 1, .head_dim = 64, .num_blocks = 1, .element = element};
    const double bound = element == KvElement::kBF16 ? 3.0e38 : 65504;
    std::vector<float> row(3 * 64, 0.0F);
    row[0] = NAN;
    row[1] = INFINITY;
    row[2] = -INFINITY;
    row[3] = 3.4e38F;
    row[4] = 1000.0F;
    for (std::size_t d = 64; d < 128; ++d) row[d] = 1e-31F;  // a row that is nearly zero, then one that is
    DeviceBuffer<float> q(row.size());
    std::fill_n(q.data(), row.size(), 0.0F);
    const DeviceBuffer<float> kv(row);
    const DeviceBuffer<float2> angles(std::vector<float2>(3, {1.0F, 0.0F}));
    const DeviceBuffer<std::int32_t> slots(std::vector<std::int32_t>{16, 17, 18});
    DeviceBuffer<std::uint8_t> cache(layout.total_bytes());
    RopeWriteKv work{.layout = layout, .cache = cache.data(), .num_heads = 1, .head_dim = 64, .rotary_dim = 2};
    work.angles = angles.data();
    work.slots = slots.data();
    work.q = q.data();
    work.k = kv.data();
    work.v = kv.data();
    rope_write_kv(work, 3, nullptr);
    std::vector<double> expected(64, 0.0);
    expected[0] = -bound;  // the rotation by nothing keeps them: NaN * 1 - inf * 0 is NaN
    expected[1] = bound;
    expected[2] = -bound;
    expected[3] = bound;
    expected[4] = 1000.0;
    const std::uint8_t* head = cache.data() + layout.head_offset(0, 1, 0);
    expect_row(layout, head, layout.value_row(0), layout.value_scale(0), expected);
    expected[1] = -bound;  // of K: NaN * 0 + inf * 1
    expect_row(layout, head, layout.key_row(0), layout.key_scale(0), expected);
    for (const std::int32_t token : {1, 2}) {
      const std::vector<double> zeros(64, 0.0);
      if (layout.has_scales()) {
        expect_row(layout, head, layout.value_row(token), layout.value_scale(token), zeros);
        EXPECT_EQ(*reinterpret_cast<const float*>(head + layout.key_scale(token)), 0.0F);
      } else {
        expect_row(layout, head, layout.value_row(token), 0, std::vector<double>(64, token == 1 ? 1e-31 : 0.0));
      }
    }
  }
}

}  // namespace
}  // namespace folio::cuda
