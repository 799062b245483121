// Hundreds of random schedules on tiny real models. FOLIO_SEED=n plays that schedule alone, of each subject.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "tests/engine/kernels/levels.h"
#include "tests/engine/reuse/random_schedule.h"

namespace folio {
namespace {

constexpr const char* kKvTypes[] = {
    "f16",
    "bf16",
    "int8",
    "f32",
};
constexpr const char* kModels[] = {kTinyLlama, kTinyGemma};

std::uint64_t playing = 0;

// A broken invariant aborts: the seed is to be known then too.
void say_seed(int) {
  std::fprintf(stderr, "aborted in the schedule of FOLIO_SEED=%llu\n", static_cast<unsigned long long>(playing));
  std::signal(SIGABRT, SIG_DFL);
}

class ReuseRandom : public testing::TestWithParam<std::string> {};

TEST_P(ReuseRandom, EveryAnswerIsAsAlone) {
  std::signal(SIGABRT, say_seed);
  const std::string& isa = GetParam();
  const char* only = std::getenv("FOLIO_SEED");
  const std::uint64_t first = only != nullptr ? std::strtoull(only, nullptr, 10) : 1;
  const std::uint64_t last = only != nullptr ? first : isa == "scalar" ? 4 : 30;
  Seen seen;
  for (const char* path : kModels) {
    const ModelFile file(path);
    for (const char* kv : kKvTypes) {
      if (!cpu::has_own(isa, kv)) continue;
      Solo solo(file, isa, kv);
      const std::vector<Asked> asked = make_asked(solo);
      for (std::uint64_t seed = first; seed <= last; ++seed) {
        playing = seed;
        play_schedule(file, isa, kv, asked, seed, seen);
        if (HasFailure()) return;
      }
    }
  }
  std::signal(SIGABRT, SIG_DFL);
  if (seen.schedules < 100) return;
  // What was meant to be met was met.
  EXPECT_GT(seen.preemptions, seen.schedules);
  EXPECT_GT(seen.recomputed, 10 * seen.schedules);
  EXPECT_GT(seen.cached, 30 * seen.schedules);
  EXPECT_GT(seen.copies, seen.schedules);
  EXPECT_GT(seen.pinned, seen.schedules / 2);
  EXPECT_GT(seen.pins_released, 0);
  EXPECT_GT(seen.whole, 10 * seen.schedules);
  EXPECT_GT(seen.beginnings, seen.schedules / 2);
  EXPECT_GT(seen.late, 0);
  EXPECT_GT(seen.scored, 50 * seen.schedules);
  EXPECT_GT(seen.behind, 5 * seen.schedules);
}

INSTANTIATE_TEST_SUITE_P(Levels, ReuseRandom, testing::ValuesIn(cpu::available_levels()),
                         [](const auto& level) { return level.param; });

}  // namespace
}  // namespace folio
