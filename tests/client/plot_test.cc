#include "client/plot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "client/plot_axis.h"
#include "client/plot_text.h"

namespace folio::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> labels(const AxisScale& scale) {
  std::vector<std::string> out;
  for (const AxisTick& tick : scale.ticks()) out.push_back(tick.label);
  return out;
}

TEST(AxisScale, LinearTicksAreRound) {
  EXPECT_THAT(labels(AxisScale(0, 60, false, 6)), ElementsAre("0", "10", "20", "30", "40", "50", "60"));
  EXPECT_THAT(labels(AxisScale(3, 97, false, 5)), ElementsAre("0", "20", "40", "60", "80", "100"));
  EXPECT_THAT(labels(AxisScale(-0.4, 0.75, false, 5)), ElementsAre("-0.5", "0", "0.5", "1.0"));
  EXPECT_THAT(labels(AxisScale(100, 103, false, 6)),
              ElementsAre("100.0", "100.5", "101.0", "101.5", "102.0", "102.5", "103.0"));
  EXPECT_THAT(labels(AxisScale(0, 131072, false, 7)),
              ElementsAre("0", "20k", "40k", "60k", "80k", "100k", "120k", "140k"));
  EXPECT_THAT(labels(AxisScale(0, 3.2e-5, false, 4)), ElementsAre("0", "1e-05", "2e-05", "3e-05", "4e-05"));
}

TEST(AxisScale, BeginsAtZeroUnlessValuesLieCloseTogether) {
  EXPECT_EQ(AxisScale(40, 100, false, 6).low(), 0);
  EXPECT_EQ(AxisScale(90, 100, false, 6).low(), 90);
  EXPECT_EQ(AxisScale(-100, -40, false, 6).high(), 0);
}

TEST(AxisScale, LogarithmicTicks) {
  EXPECT_THAT(labels(AxisScale(1, 100, true, 8)), ElementsAre("1", "2", "5", "10", "20", "50", "100"));
  EXPECT_THAT(labels(AxisScale(16, 4096, true, 9)),
              ElementsAre("10", "20", "50", "100", "200", "500", "1k", "2k", "5k"));
  EXPECT_THAT(labels(AxisScale(0.02, 3e6, true, 9)),
              ElementsAre("0.01", "0.1", "1", "10", "100", "1k", "10k", "100k", "1M", "10M"));
  EXPECT_THAT(labels(AxisScale(20, 32, true, 6)), ElementsAre("20", "22", "24", "26", "28", "30", "32"));
  const AxisScale scale(1, 10'000, true, 6);
  EXPECT_DOUBLE_EQ(scale.place(1), 0);
  EXPECT_DOUBLE_EQ(scale.place(100), 0.5);
  EXPECT_DOUBLE_EQ(scale.place(10'000), 1);
}

TEST(AxisScale, OneValueIsInTheMiddle) {
  EXPECT_NEAR(AxisScale(5, 5, false, 6).place(5), 0.5, 0.1);
  EXPECT_NEAR(AxisScale(5, 5, true, 6).place(5), 0.5, 0.1);
  EXPECT_EQ(AxisScale(0, 0, false, 6).place(0), 0);
}

// Whatever the values are: all of them lie on the axis, ticks too and in order, no two labels are alike.
TEST(AxisScale, RandomRanges) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(-199, 199), sign(-1, 1), closeness(-16, 0);
  for (int i = 0; i < 200'000; ++i) {
    const bool logarithmic = i % 2 == 0;
    double low = std::pow(10, exponent(random));
    double high = i % 3 == 0 ? std::pow(10, exponent(random)) : low * (1 + std::pow(10, closeness(random)));
    if (!logarithmic && sign(random) < 0) low = -low;
    if (!logarithmic && sign(random) < 0) high = -high;
    ASSERT_TRUE(can_place(low, logarithmic) && can_place(high, logarithmic)) << low << " " << high;
    const int wanted = 2 + i % 19;
    const AxisScale scale(low, high, logarithmic, wanted);
    const std::string what = std::to_string(low) + " to " + std::to_string(high);
    ASSERT_LE(scale.low(), std::min(low, high)) << what;
    ASSERT_GE(scale.high(), std::max(low, high)) << what;
    ASSERT_GE(scale.ticks().size(), 2U) << what;
    ASSERT_LE(scale.ticks().size(), 2U * static_cast<unsigned>(wanted) + 4) << what;
    for (std::size_t t = 0; t < scale.ticks().size(); ++t) {
      const AxisTick& tick = scale.ticks()[t];
      ASSERT_TRUE(tick.value >= scale.low() && tick.value <= scale.high()) << what;
      ASSERT_LE(tick.label.size(), 13U) << what << ": " << tick.label;
      ASSERT_TRUE(std::isfinite(scale.place(tick.value))) << what;
      if (t == 0) continue;
      ASSERT_LT(scale.ticks()[t - 1].value, tick.value) << what;
      ASSERT_NE(scale.ticks()[t - 1].label, tick.label) << what;
    }
  }
}

TEST(CanPlace, FiniteAndOfAUsableSize) {
  EXPECT_TRUE(can_place(0, false) && can_place(-1e200, false) && can_place(1e-300, false) && can_place(1e-200, true));
  for (const double value : {double{NAN}, HUGE_VAL, -HUGE_VAL, 1e201, -1e201})
    EXPECT_FALSE(can_place(value, false)) << value;
  for (const double value : {double{NAN}, 0.0, -0.0, -1.0, 1e-201}) EXPECT_FALSE(can_place(value, true)) << value;
}

TEST(XmlEscaped, EntitiesAndWhatXmlForbids) {
  EXPECT_EQ(xml_escaped("a<b> & \"c\" 'd'"), "a&lt;b&gt; &amp; &quot;c&quot; &#39;d&#39;");
  EXPECT_EQ(xml_escaped("one\ntwo\tthree\r"), "one two three ");
  EXPECT_EQ(xml_escaped("größer 長 🙂"), "größer 長 🙂");
  for (const char* bad : {"\x01", "\xFF", "\xC3", "\xC0", "\xEF\xBF\xBE"}) EXPECT_EQ(xml_escaped(bad), "\uFFFD");
  EXPECT_EQ(xml_escaped("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(xml_escaped(std::string_view("\0x", 2)), "\uFFFDx");
}

TEST(CutTo, EndsWithinItsWidth) {
  EXPECT_EQ(cut_to("short", 12, 100), "short");
  const std::string cut = cut_to(std::string(1000, 'x'), 12, 100);
  EXPECT_THAT(cut, HasSubstr("x…"));
  EXPECT_LE(text_width(cut, 12), 100);
  EXPECT_EQ(cut_to("長長長", 12, 30), "長…");
}

}  // namespace
}  // namespace folio::client
