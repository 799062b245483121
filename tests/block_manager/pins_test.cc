#include "block_manager/pins.h"

#include <gtest/gtest.h>

#include <numeric>

namespace folio {
namespace {

using Tokens = std::vector<TokenId>;

TimePoint at(int ms) {
  return TimePoint(std::chrono::milliseconds(ms));
}

class PinsTest : public testing::Test {
 protected:
  // The prefix as one sequence computes it, sealed and, since that is over, cached; its content.
  ContentRef cache(const Tokens& tokens) {
    BlockTable table = blocks_.make_table(root_);
    const std::int64_t size = static_cast<std::int64_t>(tokens.size());
    blocks_.adopt(table, tokens);
    EXPECT_TRUE(blocks_.make_room(table, size));
    blocks_.seal(table, tokens, size);
    return table.tip();
  }
  static Tokens count_up(int n, int first = 0) {
    Tokens tokens(static_cast<std::size_t>(n));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }
  void check(const Pins& pins) {
    std::vector<const BlockTable*> tables;
    pins.append_tables(tables);
    EXPECT_EQ(blocks_.broken_invariant(tables), std::nullopt);
    EXPECT_TRUE(pins.counts_agree());
  }
  // Takes every block there is to take.
  void press() {
    BlockTable table = blocks_.make_table({});
    EXPECT_TRUE(blocks_.make_room(table, std::int64_t{2} * blocks_.num_available()));
  }

  BlockManager blocks_{10, 2};
  ContentRef root_ = blocks_.open_domain("");
};

TEST_F(PinsTest, APinHoldsTheWholeChainFromTheRoot) {
  Pins pins(blocks_, 10);
  const ContentRef tip = cache(count_up(6));
  cache(count_up(4, 50));
  ASSERT_TRUE(pins.pin(1, tip, kNoDeadline));
  EXPECT_EQ(pins.num_blocks(), 3);
  EXPECT_EQ(blocks_.num_held(), 3);
  press();
  EXPECT_EQ(blocks_.num_cached_tokens("", count_up(6)), 6);
  EXPECT_EQ(blocks_.num_cached_tokens("", count_up(4, 50)), 0);
  check(pins);
  pins.release(1);
  EXPECT_EQ(blocks_.num_cached(), 3);
  press();
  EXPECT_EQ(blocks_.num_free(), 10);
  check(pins);
}

TEST_F(PinsTest, TheQuotaCountsDistinctBlocks) {
  Pins pins(blocks_, 4);
  const ContentRef long_tip = cache(count_up(6));
  Tokens other = count_up(4);
  other.insert(other.end(), {90, 91});
  const ContentRef other_tip = cache(other);
  const ContentRef third_tip = cache({70, 71});
  EXPECT_TRUE(pins.pin(1, long_tip, kNoDeadline));
  EXPECT_TRUE(pins.pin(2, other_tip, kNoDeadline));  // two blocks of three are shared
  EXPECT_EQ(pins.num_blocks(), 4);
  EXPECT_FALSE(pins.pin(3, third_tip, kNoDeadline));
  EXPECT_EQ(pins.size(), 2);
  EXPECT_EQ(blocks_.num_held(), 4);
  check(pins);
  pins.release(1);
  EXPECT_EQ(pins.num_blocks(), 3);
  EXPECT_TRUE(pins.pin(3, third_tip, kNoDeadline));
  check(pins);
}

TEST_F(PinsTest, NothingIsPinnedWithoutAQuotaOrWithoutBlocks) {
  Pins none(blocks_, 0);
  const ContentRef tip = cache(count_up(2));
  EXPECT_FALSE(none.pin(1, tip, kNoDeadline));
  Pins pins(blocks_, 10);
  EXPECT_FALSE(pins.pin(1, root_, kNoDeadline));
  EXPECT_FALSE(pins.pin(1, {}, kNoDeadline));
  EXPECT_EQ(pins.size(), 0);
  EXPECT_FALSE(pins.release_oldest());
}

TEST_F(PinsTest, OnePrefixIsPinnedOnceForTheLongerTimeAndByTheLastWhoAsked) {
  Pins pins(blocks_, 2);
  const ContentRef tip = cache(count_up(4));
  ASSERT_TRUE(pins.pin(1, tip, at(50)));
  ASSERT_TRUE(pins.pin(2, tip, at(20)));
  EXPECT_EQ(pins.size(), 1);
  EXPECT_EQ(pins.next_expiry(), at(50));
  ASSERT_TRUE(pins.pin(2, tip, at(70)));
  EXPECT_EQ(pins.next_expiry(), at(70));
  pins.release(1);
  EXPECT_EQ(pins.size(), 1);
  check(pins);
  pins.release(2);
  EXPECT_EQ(pins.size(), 0);
  EXPECT_EQ(pins.next_expiry(), kNoDeadline);
  check(pins);
}

TEST_F(PinsTest, PinsEndAtTheirTimeAndTheNextOneIsKnown) {
  Pins pins(blocks_, 10);
  ASSERT_TRUE(pins.pin(1, cache({1, 2}), at(30)));
  ASSERT_TRUE(pins.pin(2, cache({3, 4}), at(10)));
  ASSERT_TRUE(pins.pin(3, cache({5, 6}), kNoDeadline));
  EXPECT_EQ(pins.next_expiry(), at(10));
  pins.release_expired(at(9));
  EXPECT_EQ(pins.size(), 3);
  pins.release_expired(at(10));
  EXPECT_EQ(pins.size(), 2);
  EXPECT_EQ(pins.next_expiry(), at(30));
  pins.release_expired(at(1000000));
  EXPECT_EQ(pins.size(), 1);
  EXPECT_EQ(pins.next_expiry(), kNoDeadline);
  check(pins);
}

TEST_F(PinsTest, TheOldestGivesWayFirstAndAskingAgainMakesAPinYoung) {
  Pins pins(blocks_, 10);
  const ContentRef a = cache({1, 2});
  const ContentRef b = cache({3, 4});
  const ContentRef c = cache({5, 6});
  for (const ContentRef& tip : {a, b, c}) ASSERT_TRUE(pins.pin(tip.id, tip, kNoDeadline));
  ASSERT_TRUE(pins.pin(a.id, a, kNoDeadline));
  for (const ContentRef& next : {b, c, a}) {
    EXPECT_EQ(pins.holds_by_block()[static_cast<std::size_t>(next.node)], 1);
    EXPECT_TRUE(pins.release_oldest());
    EXPECT_EQ(pins.holds_by_block()[static_cast<std::size_t>(next.node)], 0);
    check(pins);
  }
  EXPECT_FALSE(pins.release_oldest());
}

TEST_F(PinsTest, AnOwnersPinsGoTogetherAndAllOfThemAtOnce) {
  Pins pins(blocks_, 10);
  ASSERT_TRUE(pins.pin(1, cache({1, 2}), kNoDeadline));
  ASSERT_TRUE(pins.pin(2, cache({3, 4}), kNoDeadline));
  ASSERT_TRUE(pins.pin(1, cache({5, 6}), kNoDeadline));
  pins.release(9);
  EXPECT_EQ(pins.size(), 3);
  pins.release(1);
  EXPECT_EQ(pins.size(), 1);
  ASSERT_TRUE(pins.pin(1, cache({7, 8}), kNoDeadline));
  pins.release_all();
  EXPECT_EQ(pins.size(), 0);
  EXPECT_EQ(pins.num_blocks(), 0);
  EXPECT_EQ(blocks_.num_held(), 0);
  check(pins);
}

TEST_F(PinsTest, PinsOfForgottenContentAreReleasedAndTheirTipsRefused) {
  Pins pins(blocks_, 10);
  const ContentRef gone = cache(count_up(4));
  const ContentRef kept = cache({50, 51});
  ASSERT_TRUE(pins.pin(1, gone, kNoDeadline));
  ASSERT_TRUE(pins.pin(2, kept, kNoDeadline));
  BlockTable failed = blocks_.make_table(root_);
  ASSERT_EQ(blocks_.adopt(failed, count_up(2)), 2);
  blocks_.forget(failed);
  failed.clear();
  EXPECT_EQ(blocks_.num_held(), 3);  // still pinned, but not to be found
  EXPECT_FALSE(pins.pin(3, gone, kNoDeadline));
  pins.release_gone();
  EXPECT_EQ(pins.size(), 1);
  EXPECT_EQ(pins.num_blocks(), 1);
  EXPECT_EQ(blocks_.num_free(), 9);
  check(pins);
  EXPECT_NE(cache(count_up(4)).id, gone.id);
  EXPECT_FALSE(pins.pin(3, gone, kNoDeadline));
}

}  // namespace
}  // namespace folio
