#include "engine/text/detokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/text/utf8.h"
#include "tests/engine/text/plain_text.h"

namespace folio {
namespace {

constexpr std::string_view kBad = "\xEF\xBF\xBD";

std::string bad(int count, std::string_view tail) {
  std::string out;
  for (int i = 0; i < count; ++i) out.append(kBad);
  return out.append(tail);
}

std::string random_bytes(std::mt19937& random) {
  // Bytes at the edges of the table of well-formed sequences, so that all its rows are met.
  static const std::string alphabet =
      "aZ\x7F\x80\x8F\x90\x9F\xA0\xBF\xC0\xC1\xC2\xDF\xE0\xE1\xEC\xED\xEE\xEF\xF0\xF1\xF3\xF4\xF5\xFF";
  std::string bytes(random() % 12, '\0');
  for (char& c : bytes)
    c = random() % 8 == 0 ? static_cast<char>(random() % 256) : alphabet[random() % alphabet.size()];
  return bytes;
}

TEST(Utf8Stream, EqualsTheWholeStringRuleForAnySplit) {
  std::mt19937 random(1);
  for (int round = 0; round < 100'000; ++round) {
    const std::string bytes = random_bytes(random);
    std::string out;
    Utf8Stream stream;
    for (std::size_t i = 0; i < bytes.size();) {
      const std::size_t size = std::min<std::size_t>(random() % 4, bytes.size() - i);
      const std::size_t before = out.size();
      stream.push(std::string_view(bytes).substr(i, size), out);
      ASSERT_TRUE(is_valid_utf8(std::string_view(out).substr(before))) << "a delta is valid on its own";
      i += size;
    }
    stream.finish(out);
    ASSERT_EQ(out, plain_utf8(bytes));
    ASSERT_EQ(sanitize_utf8(bytes), out);
    ASSERT_EQ(is_valid_utf8(bytes), out == bytes);
  }
}

TEST(Utf8Stream, ReplacesMaximalSubparts) {
  // The example of the Unicode standard, section 3.9, table 3-8, and its neighbours.
  EXPECT_EQ(sanitize_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), bad(8, "A"));
  EXPECT_EQ(sanitize_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), bad(8, "A"));
  EXPECT_EQ(sanitize_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), bad(4, "A"));
  EXPECT_EQ(sanitize_utf8("\xF4\x91\x92\x93\xFF\x41"), bad(5, "A"));
  EXPECT_EQ(sanitize_utf8("\x80\xBF\x42"), bad(2, "B"));
}

TEST(Utf8Stream, HoldsACodePointUntilItIsWhole) {
  Utf8Stream stream;
  std::string out;
  for (const std::string_view part : {"\x20\xF0\x9F", "\xA6"}) stream.push(part, out);
  EXPECT_EQ(out, " ");
  stream.push("\x99", out);
  EXPECT_EQ(out, " \xF0\x9F\xA6\x99");
  stream.finish(out);
  EXPECT_EQ(out, " \xF0\x9F\xA6\x99");
}

TEST(Utf8Stream, EndsADanglingCodePointWithOneReplacement) {
  Utf8Stream stream;
  std::string out;
  stream.push("x\xF0\x9F\xA6", out);
  EXPECT_EQ(out, "x");
  stream.finish(out);
  stream.finish(out);
  EXPECT_EQ(out, "x\xEF\xBF\xBD");
  stream.push("y", out);
  EXPECT_EQ(out, "x\xEF\xBF\xBDy") << "usable again after finish";
}

TEST(TruncateUtf8, NeverSplitsACodePoint) {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\xA6\x99z";
  const std::vector<std::size_t> expected = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11, 11};
  for (std::size_t max = 0; max < expected.size(); ++max)
    EXPECT_EQ(truncate_utf8(text, max).size(), expected[max]) << max;
  EXPECT_EQ(truncate_utf8("\x80\x80\x80\x80\x80", 3).size(), 3U);
}

// The rule in its plain form: what decode gives for both, less the code points that both begin with.
std::string rest_of(const std::string& before, const std::string& after) {
  const std::string all = sanitize_utf8(before + after);
  const std::string told = sanitize_utf8(before);
  std::size_t common = 0;
  while (common < told.size() && common < all.size()) {
    const std::size_t length = utf8_length_at(all, common);
    if (told.compare(common, length, all, common, length) != 0) break;
    common += length;
  }
  return all.substr(common);
}

std::string given_after(const std::string& before, const std::string& after, std::size_t step) {
  Utf8Stream stream;
  stream.begin_after(before);
  std::string out;
  for (std::size_t i = 0; i < after.size(); i += step) stream.push(std::string_view(after).substr(i, step), out);
  stream.finish(out);
  return out;
}

TEST(Utf8StreamAfter, ACodePointAcrossTheBorderComesWhole) {
  EXPECT_EQ(given_after("x\xF0\x9F", "\xA6\x99!", 1), "\xF0\x9F\xA6\x99!");
  EXPECT_EQ(given_after("x\xF0\x9F\xA6", "\x99", 1), "\xF0\x9F\xA6\x99");
  EXPECT_EQ(given_after("x\xF0\x9F", "hello", 2), "hello") << "its U+FFFD was told with what is before";
  EXPECT_EQ(given_after("x\xF0\x9F", "\xA6", 1), "") << "one maximal subpart, still";
  EXPECT_EQ(given_after("x\xF0\x9F", "\xA6\xA6\xF0", 1), "\xF0\x9F\xA6\xA6\xEF\xBF\xBD");
  EXPECT_EQ(given_after("x\xF0\x9F", "", 1), "");
  EXPECT_EQ(given_after("", "abc", 2), "abc");
  EXPECT_EQ(given_after("\xEF\xBF", "\xBDz", 1), "z") << "U+FFFD itself: both begin with it";
  EXPECT_EQ(given_after("\xA6\x99", "\xA6", 1), "\xEF\xBF\xBD") << "nothing is unfinished before";
}

TEST(Utf8StreamAfter, IsThePlainRuleForAnyBytes) {
  std::mt19937 random(3);
  const std::string parts[] = {"a",    "\xF0\x9F", "\xA6",     "\x99", "\xE2\x82\xAC", "\xE2",
                               "\xC3", "\xA9",     "\xEF\xBF", "\xBD", "\xFF",         "\xED\xA0"};
  const auto some = [&] {
    std::string bytes;
    for (auto count = random() % 5; count > 0; --count) bytes += parts[random() % std::size(parts)];
    return bytes;
  };
  for (int i = 0; i < 20'000; ++i) {
    const std::string before = some();
    const std::string after = some();
    ASSERT_EQ(given_after(before, after, 1 + random() % 3), rest_of(before, after)) << i;
  }
}

}  // namespace
}  // namespace folio
