// GoogleTest's main for the race build. With --traffic, the tests' use of memory by source line is printed at the end.
#include <gtest/gtest.h>

#include <cstdio>
#include <string_view>

#include "tests/simt/traffic.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const bool traffic = argc == 2 && std::string_view(argv[1]) == "--traffic";
  folio::simt::traffic::enable(traffic);
  const int failed = RUN_ALL_TESTS();
  if (traffic) std::fputs(folio::simt::traffic::table().c_str(), stdout);
  return failed;
}
