#include "engine/kernels/cuda/norm_rows.h"

#include "tests/simt/row_checks.h"

namespace folio::cuda {
namespace {

using simt::DeviceBuffer;

std::vector<double> norm_of(const double* row, const std::vector<float>& weight, double epsilon) {
  double squares = 0;
  for (std::size_t i = 0; i < weight.size(); ++i) squares += row[i] * row[i];
  const double factor = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + epsilon);
  std::vector<double> result(weight.size());
  for (std::size_t i = 0; i < weight.size(); ++i) result[i] = row[i] * factor * static_cast<double>(weight[i]);
  return result;
}

enum class Added : std::uint8_t { kNothing, kProjected, kNormOfProjected };

// x += [norm of] projected; both forms of norm(x) against double. Widths of models, of one warp, and the widest.
void check_norms(std::size_t rows, std::size_t columns, Added added) {
  SCOPED_TRACE(::testing::Message() << columns << " columns, added " << static_cast<int>(added));
  const float epsilon = 1e-5F;
  const std::vector<float> x = normal_floats(rows * columns, 1);
  const std::vector<float> projected = normal_floats(rows * columns, 2, 3.0F);
  const std::vector<float> weight = normal_floats(columns, 3);
  const std::vector<float> projected_weight = normal_floats(columns, 4);
  std::vector<std::vector<double>> expected_x;
  for (std::size_t r = 0; r < rows; ++r) {
    std::vector<double> row(x.begin() + static_cast<std::ptrdiff_t>(r * columns),
                            x.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns));
    std::vector<double> addend(projected.begin() + static_cast<std::ptrdiff_t>(r * columns),
                               projected.begin() + static_cast<std::ptrdiff_t>((r + 1) * columns));
    if (added == Added::kNormOfProjected) addend = norm_of(addend.data(), projected_weight, 1e-6);
    for (std::size_t i = 0; i < columns && added != Added::kNothing; ++i) row[i] += addend[i];
    expected_x.push_back(row);
  }
  std::vector<float> first_x;
  std::vector<std::int8_t> first_values;
  simt::in_every_order([&](simt::Order) {
    DeviceBuffer<float> device_x(x);
    const DeviceBuffer<float> device_projected(projected);
    const DeviceBuffer<float> device_weight(weight);
    const DeviceBuffer<float> device_projected_weight(projected_weight);
    OutputBuffers out(rows, columns, columns % 32 == 0);
    NormRows work{.columns = static_cast<std::int32_t>(columns), .x = device_x.data()};
    work.norm = {device_weight.data(), epsilon};
    work.out = out.outputs;
    if (added != Added::kNothing) work.projected = device_projected.data();
    if (added == Added::kNormOfProjected) work.projected_norm = {device_projected_weight.data(), 1e-6F};
    norm_rows(work, static_cast<std::int32_t>(rows), nullptr);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < columns; ++i) {
        ASSERT_NEAR(static_cast<double>(device_x[r * columns + i]), expected_x[r][i], 1e-5) << r << " " << i;
      }
      expect_outputs(out, r, norm_of(expected_x[r].data(), weight, static_cast<double>(epsilon)));
    }
    if (first_x.empty()) {
      first_x = device_x.to_vector();
      first_values = out.values.to_vector();
    }
    EXPECT_EQ(device_x.to_vector(), first_x);
    EXPECT_EQ(out.values.to_vector(), first_values);
  });
}

TEST(NormRowsTest, NormsAreThoseOfDouble) {
  for (const Added added : {Added::kNothing, Added::kProjected, Added::kNormOfProjected}) {
    for (const std::size_t columns : {8U, 32U, 128U, 136U, 576U, 640U, 1152U, 2048U}) check_norms(3, columns, added);
    check_norms(1, 4096 + 32, added);
  }
  check_norms(1, kMaxNormColumns, Added::kNormOfProjected);
}

TEST(NormRowsTest, ARowDoesNotShowItsNeighbours) {
  constexpr std::size_t kColumns = 576;
  const std::vector<float> x = normal_floats(5 * kColumns, 5);
  const DeviceBuffer<float> weight(normal_floats(kColumns, 6));
  std::vector<std::int8_t> together;
  for (const std::size_t rows : {5U, 1U}) {
    DeviceBuffer<float> device_x(std::span<const float>(x).last(rows * kColumns));
    OutputBuffers out(rows, kColumns, true);
    norm_rows({.columns = kColumns, .x = device_x.data(), .norm = {weight.data(), 1e-5F}, .out = out.outputs},
              static_cast<std::int32_t>(rows), nullptr);
    const std::vector<std::int8_t> values = out.values.to_vector();
    if (together.empty()) together.assign(values.end() - kColumns, values.end());
    EXPECT_EQ(std::vector<std::int8_t>(values.end() - kColumns, values.end()), together);
  }
}

// Rows for the logits: chosen ones, one twice; x stays as it is.
TEST(NormRowsTest, ChosenRows) {
  constexpr std::size_t kColumns = 640;
  const std::vector<float> x = normal_floats(6 * kColumns, 7);
  const std::vector<float> weight = normal_floats(kColumns, 8);
  const std::vector<std::int32_t> rows{4, 0, 4};
  DeviceBuffer<float> device_x(x);
  const DeviceBuffer<float> device_weight(weight);
  const DeviceBuffer<std::int32_t> device_rows(rows);
  OutputBuffers out(rows.size(), kColumns, true);
  norm_rows({.columns = kColumns,
             .x = device_x.data(),
             .rows = device_rows.data(),
             .norm = {device_weight.data(), 1e-6F},
             .out = out.outputs},
            3, nullptr);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const auto begin = x.begin() + rows[r] * static_cast<std::ptrdiff_t>(kColumns);
    const std::vector<double> row(begin, begin + kColumns);
    expect_outputs(out, r, norm_of(row.data(), weight, 1e-6));
  }
  EXPECT_EQ(device_x.to_vector(), x);
}

// Without a norm: the CPU's quantisation to the bit, also of zeros and of what is nearly zero.
TEST(NormRowsTest, QuantisesAsTheCpuDoes) {
  constexpr std::size_t kColumns = 32 * 7;
  std::vector<float> x = normal_floats(2 * kColumns, 9, 100.0F);
  std::fill_n(x.begin(), 32, 0.0F);
  std::fill_n(x.begin() + 32, 32, 1e-31F);
  for (std::size_t i = 64; i < 96; ++i) x[i] = static_cast<float>(i - 64) + 0.5F;  // ties to even
  x[64] = 127.0F;
  x[96] = 3.0e38F;
  simt::in_every_order([&](simt::Order) {
    DeviceBuffer<float> device_x(x);
    OutputBuffers out(2, kColumns, true);
    norm_rows({.columns = kColumns, .x = device_x.data(), .out = out.outputs}, 2, nullptr);
    for (std::size_t r = 0; r < 2; ++r) expect_quantised_as_cpu(out, r, x.data() + r * kColumns, kColumns);
  });
}

// Infinity leaves no steps to the others of its group; NaN is the lowest step and leaves the others theirs.
TEST(NormRowsTest, QuantisesWhatIsNoNumber) {
  std::vector<float> x(64, 1.0F);
  x[3] = INFINITY;
  x[32] = NAN;
  x[33] = -2.0F;
  DeviceBuffer<float> device_x(x);
  OutputBuffers out(1, 64, true);
  norm_rows({.columns = 64, .x = device_x.data(), .out = out.outputs}, 1, nullptr);
  std::vector<std::int8_t> expected(64, 0);
  expected[3] = -127;                                    // infinity times 0
  std::fill(expected.begin() + 34, expected.end(), 64);  // 63.5, to even
  expected[32] = -127;
  expected[33] = -127;
  EXPECT_EQ(out.values.to_vector(), expected);
  EXPECT_EQ(out.groups[1].x, 2.0F / 127.0F);
}

}  // namespace
}  // namespace folio::cuda
