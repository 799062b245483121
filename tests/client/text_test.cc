#include "client/text.h"

#include <gtest/gtest.h>

#include <string>

namespace folio::client {
namespace {

TEST(Text, TheFirstByteThatIsNotUtf8) {
  struct Case {
    std::string text;
    std::optional<std::size_t> bad;
  };
  const std::vector<Case> cases = {
      {"", std::nullopt},
      {"plain", std::nullopt},
      {"h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", std::nullopt},
      {std::string("a\0b", 3), std::nullopt},
      {"\xFF", 0},
      {"ab\x80", 2},
      {"ab\xC3", 2},            // cut
      {"\xC0\xAF", 0},          // too long a form
      {"\xE0\x80\x80", 0},      // likewise
      {"\xED\xA0\x80", 0},      // a surrogate
      {"\xF4\x90\x80\x80", 0},  // above U+10FFFF
      {"\xF0\x9F\x98", 0},
      {"\xE2\x82x", 0},
      {"\xF5\x80\x80\x80", 0},
  };
  for (const Case& sample : cases) EXPECT_EQ(first_bad_byte(sample.text), sample.bad) << sample.text;
}

TEST(Text, NothingPrintableDrivesATerminal) {
  EXPECT_EQ(printable("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(printable("\x1b[2J\x07\rx\x7F"), "[2Jx");
  EXPECT_EQ(printable("a\xC2\x9B"
                      "2Jb\xC2\x85"),
            "a2Jb");  // CSI and next line of Latin-1
  EXPECT_EQ(printable("\xC2\xA0\xC3\xA9\xF0\x9F\x98\x80"), "\xC2\xA0\xC3\xA9\xF0\x9F\x98\x80");
}

TEST(Text, WhatIsNoCharacterIsReplaced) {
  EXPECT_EQ(repaired("h\xC3\xA9"), "h\xC3\xA9");
  EXPECT_EQ(repaired("a\xFF\xC3"), "a\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_FALSE(first_bad_byte(repaired("\xED\xA0\x80\xF0\x9F")));
}

TEST(Text, WidthsAndCuts) {
  EXPECT_EQ(display_width("h\xC3\xA9\xF0\x9F\x98\x80"), 3U);
  EXPECT_EQ(display_width("\x1b[32mab\x1b[0m"), 2U);
  EXPECT_EQ(cut_to_width("h\xC3\xA9llo", 2), "h\xC3\xA9");
  EXPECT_EQ(cut_to_width("\x1b[32mabcdef\x1b[0m", 3), "\x1b[32mabc\x1b[0m");
  EXPECT_EQ(cut_to_width("ab", 9), "ab");
  EXPECT_EQ(cut_to_width("ab", 0), "");
}

TEST(Text, NumbersHaveNoExponent) {
  for (const char* number : {"0.0001", "0.1", "8", "2.5", "1000000", "123456789012"}) {
    EXPECT_EQ(number_text(std::stod(number)), number);
  }
}

}  // namespace
}  // namespace folio::client
