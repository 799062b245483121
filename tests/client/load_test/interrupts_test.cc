// Signals, as every command of folio-client hears them.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/client/load_test/bench_runs.h"

namespace folio::testing {
namespace {

using namespace std::chrono_literals;

// As from coreutils' timeout, which signals the program and then its group.
TEST(Interrupts, ASecondSignalAtOnceIsTheSamePress) {
  std::atomic<int> last{0};
  interrupts().on_interrupt([&last](int, int count) { last.store(count); });
  const auto press = [] {
    kill(getpid(), SIGINT);
    std::this_thread::sleep_for(10ms);
  };
  press();
  press();
  EXPECT_EQ(last.load(), 1);
  std::this_thread::sleep_for(150ms);
  press();
  EXPECT_EQ(last.load(), 2);
  std::this_thread::sleep_for(150ms);  // for the tests behind this one
  interrupts().on_interrupt(nullptr);
}

}  // namespace
}  // namespace folio::testing
