#include "tests/gpu/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/support/temp_folder.h"

namespace folio::gpu {
namespace {

TEST(GpuReportTest, TheFileIsWholeAfterEachFinding) {
  const testing::TempFolder folder;
  const std::string path = folder.path("report.json");
  const auto read = [&] { return nlohmann::json::parse(testing::read_file(path)); };
  Report report("a \"part\"", path);
  EXPECT_EQ(read().at("finished"), false);
  report.check("holds", true);
  EXPECT_TRUE(report.all_hold());
  report.check("does\nnot", false, "1 \\ 2");
  EXPECT_FALSE(report.all_hold());
  report.figure("speed", 4.25, "GB/s");
  report.figure("none", NAN, "GB/s");
  report.left_out("another", "no room");
  report.finish();
  const nlohmann::json found = read();
  EXPECT_EQ(found.at("part"), "a \"part\"");
  EXPECT_EQ(found.at("finished"), true);
  EXPECT_EQ(found.at("checks"), 2);
  EXPECT_EQ(found.at("failures"), nlohmann::json::parse(R"([{"name": "does\nnot", "seen": "1 \\ 2"}])"));
  EXPECT_EQ(found.at("figures").at(0).at("value"), 4.25);
  EXPECT_TRUE(found.at("figures").at(1).at("value").is_null());
  EXPECT_EQ(found.at("left_out").at(0).at("reason"), "no room");
}

}  // namespace
}  // namespace folio::gpu
