#include "tests/simt/traffic.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/simt/device_buffer.h"
#include "tests/simt/operations_kernels.h"

namespace folio::simt {
namespace {

std::vector<traffic::Row> rows_of_walk(int stride) {
  const DeviceBuffer<float> from(std::vector<float>(32 * 8, 1.0F));
  DeviceBuffer<float> to(32);
  traffic::enable(true);
  cuda::walk_memory(from.data(), stride, to.data());
  traffic::enable(false);
  return traffic::report();  // in the order of lines
}

// Of the walk: global read; shared float, 16 near and 16 far written; the same read; global write.
TEST(TrafficTest, CountsConflictsAndSectors) {
  for (const int stride : {1, 2, 8}) {
    const std::vector<traffic::Row> rows = rows_of_walk(stride);
    ASSERT_EQ(rows.size(), 8U);
    for (const traffic::Row& row : rows) {
      EXPECT_EQ(row.place.find("tests/simt/operations_kernels.cc:"), 0U) << row.place;
      EXPECT_EQ(row.accesses, 1U);
    }
    const bool shared[] = {false, true, true, true, true, true, true, false};
    const bool write[] = {false, true, true, true, false, false, false, true};
    const double bytes[] = {128, 128, 512, 512, 128, 512, 512, 128};
    const int conflict[] = {0, stride, 1, 8, stride, 1, 8, 0};
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].shared, shared[i]);
      EXPECT_EQ(rows[i].write, write[i]);
      EXPECT_EQ(rows[i].bytes, bytes[i]);
      EXPECT_EQ(rows[i].worst_conflict, conflict[i]) << i;
      EXPECT_EQ(rows[i].mean_conflict, conflict[i]) << i;
    }
    EXPECT_EQ(rows.front().sectors, 4 * stride);
    EXPECT_EQ(rows.back().sectors, 4);
  }
  EXPECT_NE(traffic::table().find("| shared write | 1 | 512 | 8.00 | 8 | |"), std::string::npos) << traffic::table();
}

}  // namespace
}  // namespace folio::simt
