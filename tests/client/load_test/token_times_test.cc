// C03: tokens are counted, not messages, and a message's time is shared by its tokens.
#include "client/load_test/token_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace folio::client {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

const SteadyTime kStart = SteadyTime() + 1000s;

Arrival ids(int ms, std::int64_t tokens, std::int32_t index = 0) {
  return {kStart + std::chrono::milliseconds(ms), tokens, 0, index};
}
Arrival text(int ms, std::int64_t bytes, std::int32_t index = 0) {
  return {kStart + std::chrono::milliseconds(ms), 0, bytes, index};
}
double sum(const std::vector<float>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}
std::int64_t tokens_of(const TokenTimes& times) {
  std::int64_t tokens = 0;
  for (const TokenMoment& moment : times.moments) tokens += moment.tokens;
  return tokens;
}

TEST(TokenTimes, AMessagesGapIsSharedByItsTokens) {
  const TokenTimes times = measure({ids(100, 2), ids(130, 1), ids(170, 4)}, {}, kStart);
  EXPECT_THAT(times.gaps_ms, ElementsAre(0, 30, 10, 10, 10, 10));
  ASSERT_EQ(times.moments.size(), 3U);
  EXPECT_DOUBLE_EQ(times.moments[2].at_s, 0.17);
  EXPECT_EQ(times.moments[2].tokens, 4);
}

TEST(TokenTimes, HoweverTheyAreCutTheMeanGapIsTheSpanOverTheGaps) {
  for (const int num_messages : {1, 10, 25, 100}) {
    std::vector<Arrival> arrivals;
    for (int i = 0; i < num_messages; ++i) arrivals.push_back(ids(50 + 990 * i / num_messages, 100 / num_messages));
    const TokenTimes times = measure(arrivals, {}, kStart);
    EXPECT_EQ(times.gaps_ms.size(), 99U);
    const double span = std::chrono::duration<double, std::milli>(arrivals.back().at - arrivals.front().at).count();
    EXPECT_NEAR(sum(times.gaps_ms), span, 1e-3);
  }
}

TEST(TokenTimes, OneTokenHasNoGap) {
  EXPECT_TRUE(measure({ids(10, 1)}, {}, kStart).gaps_ms.empty());
  EXPECT_TRUE(measure({}, 5, kStart).moments.empty());
}

TEST(TokenTimes, AnswersHaveGapsOfTheirOwn) {
  const TokenTimes times = measure({ids(100, 1, 0), ids(100, 1, 1), ids(140, 1, 0), ids(150, 1, 1)}, {}, kStart);
  EXPECT_THAT(times.gaps_ms, ElementsAre(40, 50));
}

TEST(TokenTimes, WithoutIdsTheTotalIsSpreadByBytes) {
  const TokenTimes times = measure({text(100, 10), text(150, 10), text(200, 20)}, 8, kStart);
  EXPECT_EQ(tokens_of(times), 8);
  EXPECT_THAT(times.gaps_ms, ElementsAre(0, 25, 25, 12.5, 12.5, 12.5, 12.5));
}

TEST(TokenTimes, FewerTokensThanMessages) {
  const TokenTimes times = measure({text(100, 1), text(110, 1), text(120, 1), text(160, 1)}, 2, kStart);
  EXPECT_EQ(tokens_of(times), 2);
  EXPECT_EQ(times.gaps_ms.size(), 1U);
  EXPECT_DOUBLE_EQ(times.moments.front().at_s, 0.1);  // the first with text has a token
}

TEST(TokenTimes, WithoutIdsAndTotalThereIsNothingToSay) {
  EXPECT_TRUE(measure({text(100, 10), text(150, 10)}, {}, kStart).moments.empty());
}

TEST(TokenTimes, IdsOutweighATotal) {
  EXPECT_EQ(tokens_of(measure({ids(100, 3), ids(150, 3)}, 99, kStart)), 6);
}

TEST(TokenTimes, RolesAndUsageAreNoContent) {
  EXPECT_FALSE(has_content({kStart, 0, 0}));
  EXPECT_TRUE(has_content({kStart, 1, 0}));  // an id whose text is held back
  EXPECT_TRUE(has_content({kStart, 0, 1}));
}

}  // namespace
}  // namespace folio::client
