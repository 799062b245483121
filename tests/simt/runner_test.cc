// Launches: what is refused, in which order threads run, and what happens to exceptions.
#include "tests/simt/runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace folio::simt {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

std::size_t running_thread() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

std::vector<std::size_t> order_of(int ctas, int threads) {
  std::vector<std::size_t> order;
  run("order", dim3(static_cast<unsigned>(ctas)), threads, 0, [&] { order.push_back(running_thread()); });
  return order;
}

TEST(RunnerTest, EveryThreadRunsOnceInTheOrderThatWasAskedFor) {
  constexpr int kCtas = 3;
  constexpr int kThreads = 96;
  std::vector<std::size_t> forward(kCtas * kThreads);
  for (std::size_t i = 0; i < forward.size(); ++i) forward[i] = i;
  set_order(Order::kForward);
  EXPECT_EQ(order_of(kCtas, kThreads), forward);
  set_order(Order::kReverse);
  EXPECT_EQ(order_of(kCtas, kThreads), std::vector<std::size_t>(forward.rbegin(), forward.rend()));
  set_order(Order::kRandom, 5);
  std::vector<std::size_t> random = order_of(kCtas, kThreads);
  EXPECT_NE(random, forward);
  set_order(Order::kRandom, 5);
  EXPECT_EQ(order_of(kCtas, kThreads), random);
  set_order(Order::kForward);
  std::sort(random.begin(), random.end());
  EXPECT_EQ(random, forward);
}

TEST(RunnerTest, IndicesOfCtas) {
  std::vector<unsigned> seen;
  run("indices", dim3(2, 3, 2), 32, 0, [&] {
    EXPECT_EQ(gridDim.x * gridDim.y * gridDim.z, 12U);
    if (threadIdx.x == 0) seen.push_back(blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z);
  });
  EXPECT_EQ(seen, (std::vector<unsigned>{0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121}));
}

TEST(RunnerTest, RefusesWhatADeviceWould) {
  const auto launch = [](dim3 grid, int threads, std::size_t shared_bytes) {
    return [=] { run("name", grid, threads, shared_bytes, [] {}); };
  };
  for (const int threads : {0, 33, 1056}) {
    EXPECT_THAT(launch(1, threads, 0),
                ThrowsMessage<SimtError>(HasSubstr("name: " + std::to_string(threads) + " threads")));
  }
  EXPECT_THAT(launch(1, 32, 163 * 1024 + 1), ThrowsMessage<SimtError>(HasSubstr("shared memory")));
  EXPECT_THAT(launch(dim3(1, 65536), 32, 0), ThrowsMessage<SimtError>(HasSubstr("65535")));
  EXPECT_NO_THROW(launch(dim3(0), 7, 0)());
}

TEST(RunnerTest, ALaunchInsideAKernel) {
  EXPECT_THAT(([] { run("outer", 1, 32, 0, [] { run("inner", 1, 32, 0, [] {}); }); }),
              ThrowsMessage<SimtError>(HasSubstr("inner: started inside a kernel")));
}

TEST(RunnerTest, ExceptionsLeaveTheLaunchAndTheNextOneRuns) {
  EXPECT_THAT(([] {
                run("throws", 2, 64, 0, [] {
                  if (threadIdx.x == 40) throw std::logic_error("as it was");
                });
              }),
              ThrowsMessage<std::logic_error>("as it was"));
  EXPECT_EQ(order_of(1, 64).size(), 64U);
}

}  // namespace
}  // namespace folio::simt
