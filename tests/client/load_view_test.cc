#include "client/load_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include <random>
#include <string>

#include "client/text.h"

namespace folio::client {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

v1::Load sample() {
  v1::Load load;
  load.set_num_running(3);
  load.set_num_waiting(2);
  load.set_num_front_waiting(1);
  load.set_blocks_total(1455);
  load.set_blocks_held(45);
  load.set_blocks_pinned(5);
  load.set_blocks_cached(10);
  load.set_blocks_free(1400);
  load.set_prompt_tokens(1500);
  load.set_cached_tokens(500);
  load.set_output_tokens(1234567);
  load.set_prompt_tokens_per_second(12.34);
  load.set_output_tokens_per_second(151.2);
  load.set_mean_step_ms(6.5);
  load.set_last_step_ms(7);
  load.mutable_mean_step_phases()->set_forward_ms(6);
  load.mutable_mean_step_phases()->set_sample_ms(0.5);
  return load;
}

v1::ServerInfo info() {
  v1::ServerInfo out;
  out.set_model("mo\x1b[2Jdel");
  out.set_block_size(16);
  out.set_isa("avx2");
  out.set_num_threads(2);
  return out;
}

TEST(LoadLine, NamesEveryNumber) {
  EXPECT_EQ(
      load_line(sample()),
      "running 3 waiting 3 held 45 pinned 5 cached 10 free 1400 unaccounted 0 prompt_tok/s 12.3 output_tok/s 151.2 "
      "step_ms 6.50 schedule_ms 0.000 build_ms 0.000 forward_ms 6.000 sample_ms 0.500 commit_ms 0.000");
}

TEST(LoadViewTest, AScreenSaysWhatTheLoadSays) {
  LoadView view(info(), "host:1");
  view.add(sample());
  std::string screen;
  for (const std::string& line : view.lines({120, false})) screen += line + "\n";
  for (const char* part :
       {"mo[2Jdel at host:1", "3 running  2 waiting  1 not yet", "output 151.2  prompt 12.3", "held 40", "pinned 5",
        "cached 10", "free 1,400", "of 1,455 x 16 tokens", "forward 6.00", "sample 0.50", "mean 6.50 ms",
        "last 7.00 ms", "output 1,234,567", "1,500 tokens computed and 500 cached (25 %)"}) {
    EXPECT_THAT(screen, HasSubstr(part));
  }
  EXPECT_THAT(screen, Not(HasSubstr("\x1b")));
  EXPECT_THAT(screen, Not(HasSubstr("UNACCOUNTED")));
  v1::Load lost = sample();
  lost.set_blocks_unaccounted(7);
  view.add(lost);
  EXPECT_THAT(view.lines({200, true})[7], HasSubstr("UNACCOUNTED 7"));
}

TEST(LoadViewTest, EveryLineFitsAndTheirNumberStays) {
  for (const std::size_t columns : {1U, 5U, 10U, 20U, 80U, 300U}) {
    LoadView view(info(), "host:1");
    const std::size_t before = view.lines({columns, true}).size();
    for (int i = 0; i < 300; ++i) view.add(sample());
    const auto lines = view.lines({columns, true});
    EXPECT_EQ(lines.size(), before);
    for (const std::string& line : lines) {
      EXPECT_LE(display_width(line), columns) << line;
      EXPECT_FALSE(first_bad_byte(line)) << line;
    }
  }
}

TEST(Bar, WhatIsNoAmountIsNothing) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(bar({{kNan, "a", ""}, {-5, "b", ""}, {kInfinite, "c", ""}}, 4, false), "    ");
  EXPECT_EQ(bar({{kNan, "a", ""}, {-5, "b", ""}, {2, "c", ""}}, 4, false), "cccc");
}

TEST(Bar, IsAlwaysAsWideAndEveryPartIsSeen) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::vector<BarPart> parts;
    for (const char* character : {"a", "b", "c", "d"}) {
      parts.push_back({random() % 3 == 0 ? 0.0 : static_cast<double>(1U << (random() % 20)), character, ""});
    }
    const std::size_t width = 4 + random() % 60;
    const std::string got = bar(parts, width, false);
    ASSERT_EQ(got.size(), width);
    const bool empty = std::all_of(parts.begin(), parts.end(), [](const BarPart& part) { return part.value == 0; });
    for (const BarPart& part : parts) {
      EXPECT_EQ(got.find(part.character) != std::string::npos, part.value > 0) << got;
    }
    EXPECT_EQ(got.find(' ') != std::string::npos, empty);
  }
  EXPECT_EQ(bar({{1, "a", ""}, {3, "b", ""}}, 8, false), "aabbbbbb");
  EXPECT_EQ(bar({{1, "a", "32"}}, 2, true), "\x1b[32maa\x1b[0m");
  EXPECT_EQ(bar({{1, "a", ""}, {1, "b", ""}, {1, "c", ""}}, 2, false).size(), 2U);
}

TEST(Sparkline, ScalesToItsLargest) {
  EXPECT_EQ(sparkline({}, 5), "");
  EXPECT_EQ(sparkline({0, 0}, 5), "▁▁");
  EXPECT_EQ(sparkline({0, 4, 8}, 5), "▁▅█");
  EXPECT_EQ(sparkline({100, 0, 4, 8}, 3), "▁▅█");
}

TEST(LoadViewTest, WhatIsCutIsMarked) {
  LoadView view(info(), "host:1");
  view.add(sample());
  EXPECT_TRUE(view.lines({40, false}).back().ends_with("\u2026"));
  EXPECT_FALSE(view.lines({400, false}).back().ends_with("\u2026"));
}

}  // namespace
}  // namespace folio::client
