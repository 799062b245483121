#include <gtest/gtest.h>
#include <sched.h>

#include <optional>
#include <string>

#include "base/cgroup.h"
#include "base/thread_pool.h"
#include "tests/support/temp_folder.h"

namespace folio {
namespace {

class CgroupLimit : public ::testing::Test {
 protected:
  void membership(const std::string& lines) { folder_.write("self", lines); }
  void group(const std::string& file, const std::string& content) { folder_.write("fs/" + file, content); }
  std::optional<int> limit() const { return cgroup_cpu_limit(folder_.path("self"), folder_.path("fs")); }
  testing::TempFolder folder_;
};

TEST_F(CgroupLimit, NothingReadableIsNoLimit) {
  EXPECT_EQ(limit(), std::nullopt);
  membership("no colon here\n");
  EXPECT_EQ(limit(), std::nullopt);
}

TEST_F(CgroupLimit, Version2) {
  membership("0::/pod/one\n");
  group("pod/one/cpu.max", "max 100000\n");
  EXPECT_EQ(limit(), std::nullopt);
  group("pod/one/cpu.max", "300000 100000\n");
  EXPECT_EQ(limit(), 3);
  group("pod/one/cpu.max", "250001 100000\n");
  EXPECT_EQ(limit(), 3) << "rounded up";
  group("pod/one/cpu.max", "1000 100000\n");
  EXPECT_EQ(limit(), 1);
  group("pod/cpu.max", "200000 100000\n");
  group("pod/one/cpu.max", "800000 100000\n");
  EXPECT_EQ(limit(), 2) << "an ancestor bounds it";
}

TEST_F(CgroupLimit, InsideAContainerTheMountIsTheGroup) {
  membership("0::/not/below/this/mount\n");
  group("cpu.max", "150000 100000\n");
  EXPECT_EQ(limit(), 2);
  membership("0::/\n");
  EXPECT_EQ(limit(), 2);
}

TEST_F(CgroupLimit, Version1) {
  membership("12:cpuset:/x\n4:cpu,cpuacct:/job\n0::/\n");
  group("cpu/job/cpu.cfs_quota_us", "-1\n");
  group("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(limit(), std::nullopt);
  group("cpu/job/cpu.cfs_quota_us", "350000\n");
  EXPECT_EQ(limit(), 4);
}

TEST_F(CgroupLimit, OddContentIsNoLimit) {
  membership("0::/\n");
  for (const char* content : {"", "100000", "100000 0", "-1 100000", "12abc 100000", "max", "0 100000"}) {
    group("cpu.max", content);
    EXPECT_EQ(limit(), std::nullopt) << content;
  }
  group("cpu.max", "1e300 1");
  EXPECT_GT(limit(), 1000);
}

TEST_F(CgroupLimit, MemoryThatIsLeft) {
  const auto left = [this] { return cgroup_memory_left(folder_.path("self"), folder_.path("fs")); };
  membership("0::/a/b\n");
  EXPECT_EQ(left(), std::nullopt);
  group("a/b/memory.max", "max\n");
  group("a/b/memory.current", "5\n");
  EXPECT_EQ(left(), std::nullopt);
  group("a/memory.max", "1000\n");
  group("a/memory.current", "400\n");
  EXPECT_EQ(left(), 600U) << "an ancestor bounds it";
  group("a/memory.current", "4000\n");
  EXPECT_EQ(left(), 0U) << "over its limit";
  membership("3:memory:/job\n");
  group("memory/job/memory.limit_in_bytes", "9223372036854771712\n");
  group("memory/job/memory.usage_in_bytes", "400\n");
  EXPECT_EQ(left(), std::nullopt) << "version 1 says no limit so";
  group("memory/job/memory.limit_in_bytes", "500\n");
  EXPECT_EQ(left(), 100U);
}

TEST(AvailableCores, FollowsTheAffinityMask) {
  const int cores = available_cores();
  EXPECT_GE(cores, 1);
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_LE(cores, CPU_COUNT(&before));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(available_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(available_cores(), cores);
}

}  // namespace
}  // namespace folio
