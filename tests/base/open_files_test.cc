#include "base/open_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace folio {
namespace {

class OpenFiles : public ::testing::Test {
 protected:
  void SetUp() override { getrlimit(RLIMIT_NOFILE, &before_); }
  void TearDown() override { setrlimit(RLIMIT_NOFILE, &before_); }
  static void allow(rlim_t files) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = files;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }

  rlimit before_{};
};

TEST_F(OpenFiles, SomeAreSpared) {
  allow(500);
  EXPECT_EQ(max_connection_files(64), 436U);
  EXPECT_EQ(max_connection_files(0), 500U);
}

TEST_F(OpenFiles, OfFewHalf) {
  allow(40);
  EXPECT_EQ(max_connection_files(64), 20U);
}

}  // namespace
}  // namespace folio
