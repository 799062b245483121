#include "block_manager/prefix_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace folio {
namespace {

using Tokens = std::vector<TokenId>;

std::vector<BlockId> sorted(std::vector<BlockId> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

TEST(PrefixIndex, AContentIsFoundUnderItsParentOnly) {
  PrefixIndex index(8, 3);
  const ContentRef root = index.open_domain("");
  const ContentRef a = index.add(root, Tokens{1, 2, 3}, 5);
  const ContentRef b = index.add(a, Tokens{1, 2, 3}, 2);
  ASSERT_EQ(a.node, 5);
  ASSERT_EQ(b.node, 2);
  EXPECT_NE(a.id, b.id);
  EXPECT_EQ(index.best_child(root, Tokens{1, 2, 3}).content.id, a.id);
  EXPECT_EQ(index.best_child(a, Tokens{1, 2, 3, 9}).content.id, b.id);
  EXPECT_EQ(index.best_child(a, Tokens{1, 2, 3, 9}).num_common, 3);
  EXPECT_EQ(index.best_child(b, Tokens{1, 2, 3}).num_common, 0);
  EXPECT_EQ(index.best_child(root, Tokens{2, 2, 3}).num_common, 0);
  EXPECT_EQ(index.best_child(root, Tokens{}).num_common, 0);
  EXPECT_EQ(index.parent(b).id, a.id);
  EXPECT_EQ(index.parent(a).id, root.id);
  EXPECT_EQ(index.broken_invariant(), std::nullopt);
}

TEST(PrefixIndex, TheLongestCommonPartAmongHundredsOfChildrenIsThatOfBruteForce) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](int n) { return static_cast<TokenId>(random() % static_cast<unsigned>(n)); };
    const int block_size = 1 + pick(8);
    const int vocabulary = 2 + pick(4);
    const auto make = [&](int n) {
      Tokens tokens(static_cast<std::size_t>(n));
      for (TokenId& token : tokens) token = pick(vocabulary) - 1;
      return tokens;
    };
    PrefixIndex index(600, block_size);
    const ContentRef root = index.open_domain("");
    std::map<BlockId, Tokens> children;
    for (BlockId block = 1; block <= 600; ++block) {
      const Tokens tokens = make(block_size);
      const ContentRef content = index.add(root, tokens, block);
      const auto same = std::find_if(children.begin(), children.end(), [&](auto& c) { return c.second == tokens; });
      ASSERT_EQ(content.node, same == children.end() ? block : same->first) << "seed " << seed;
      if (same == children.end()) children[block] = tokens;
      if (pick(4) > 0) continue;
      const auto victim = std::next(children.begin(), pick(static_cast<int>(children.size())));
      std::vector<BlockId> dropped;
      index.drop(victim->first, dropped);
      ASSERT_EQ(dropped, std::vector<BlockId>{victim->first});
      children.erase(victim);
    }
    ASSERT_EQ(index.broken_invariant(), std::nullopt) << "seed " << seed;
    for (int i = 0; i < 500; ++i) {
      const Tokens wanted = make(pick(block_size + 3));
      const auto common = [&](const Tokens& tokens) {
        return std::mismatch(tokens.begin(), tokens.end(), wanted.begin(), wanted.end()).first - tokens.begin();
      };
      std::ptrdiff_t best = 0;
      for (const auto& [block, tokens] : children) best = std::max(best, common(tokens));
      const PrefixIndex::Child child = index.best_child(root, wanted);
      ASSERT_EQ(child.num_common, best) << "seed " << seed;
      if (best == 0) continue;
      ASSERT_EQ(common(children.at(child.content.node)), best) << "seed " << seed;
    }
  }
}

// With one token of a block unlike, whichever it is, nothing but what comes before is in common: no collision is
// possible where nothing is hashed.
TEST(PrefixIndex, EveryTokenIsCompared) {
  constexpr int kSize = 64;
  PrefixIndex index(2, kSize);
  const ContentRef root = index.open_domain("");
  Tokens tokens(kSize);
  for (int i = 0; i < kSize; ++i) tokens[static_cast<std::size_t>(i)] = 1000 + 37 * i;
  index.add(root, tokens, 1);
  for (int i = 0; i < kSize; ++i) {
    for (int change : {1, -1, 1 << 16, 1 << 30}) {
      Tokens other = tokens;
      other[static_cast<std::size_t>(i)] ^= change;
      ASSERT_EQ(index.best_child(root, other).num_common, i);
    }
  }
}

TEST(PrefixIndex, SaltsAndPrivateDomainsShareNothing) {
  PrefixIndex index(9, 2);
  const std::vector<ContentRef> roots = {index.open_domain(""), index.open_domain("a"), index.open_domain("b"),
                                         index.open_private_domain(), index.open_private_domain()};
  EXPECT_EQ(index.num_domains(), 5U);
  BlockId block = 0;
  for (const ContentRef& root : roots) {
    EXPECT_EQ(index.best_child(root, Tokens{7, 8}).num_common, 0);
    EXPECT_EQ(index.add(root, Tokens{7, 8}, ++block).node, block);
  }
  EXPECT_EQ(index.open_domain("a").id, roots[1].id);
  EXPECT_EQ(index.find_domain("b").id, roots[2].id);
  EXPECT_EQ(index.find_domain("c").id, 0U);
  EXPECT_EQ(index.num_domains(), 5U);
  for (BlockId i = 1; i <= block; ++i) {
    EXPECT_EQ(index.best_child(roots[static_cast<std::size_t>(i - 1)], Tokens{7, 8}).content.node, i);
  }
}

TEST(PrefixIndex, APrivateDomainTakesItsContentsWithIt) {
  PrefixIndex index(9, 1);
  const ContentRef other = index.open_domain("");
  const ContentRef root = index.open_private_domain();
  const ContentRef a = index.add(root, Tokens{1}, 1);
  index.add(a, Tokens{2}, 2);
  index.add(root, Tokens{3}, 3);
  index.add(other, Tokens{1}, 4);
  std::vector<BlockId> dropped;
  index.close_domain(root, dropped);
  EXPECT_EQ(sorted(dropped), (std::vector<BlockId>{1, 2, 3}));
  EXPECT_FALSE(index.holds(root));
  EXPECT_FALSE(index.holds(a));
  EXPECT_EQ(index.content(4).node, 4);
  EXPECT_NE(index.content(4).id, 0U);
  EXPECT_EQ(index.num_domains(), 1U);
  EXPECT_EQ(index.broken_invariant(), std::nullopt);
}

TEST(PrefixIndex, ARootGoesWhenItIsClosedAndEmptyAndIsFoundAgainWhileContentIsLeft) {
  PrefixIndex index(4, 1);
  std::vector<BlockId> dropped;
  const ContentRef empty = index.open_domain("x");
  index.close_domain(empty, dropped);
  EXPECT_FALSE(index.holds(empty));
  EXPECT_EQ(index.num_domains(), 0U);

  const ContentRef root = index.open_domain("x");
  EXPECT_NE(root.id, empty.id);  // whatever was said of the first is not said of this one
  EXPECT_EQ(root.node, empty.node);
  index.open_domain("x");
  index.add(root, Tokens{5}, 1);
  index.close_domain(root, dropped);
  index.close_domain(root, dropped);
  EXPECT_TRUE(dropped.empty());
  EXPECT_TRUE(index.holds(root));
  EXPECT_EQ(index.open_domain("x").id, root.id);
  EXPECT_EQ(index.best_child(root, Tokens{5}).num_common, 1);
  index.close_domain(root, dropped);
  index.drop(1, dropped);
  EXPECT_EQ(dropped, std::vector<BlockId>{1});
  EXPECT_FALSE(index.holds(root));
  EXPECT_EQ(index.find_domain("x").id, 0U);
  EXPECT_EQ(index.num_domains(), 0U);
}

TEST(PrefixIndex, AParentThatWasRefilledLendsItsChildrenToNobody) {
  PrefixIndex index(4, 2);
  std::vector<BlockId> dropped;
  const ContentRef root = index.open_domain("");
  const ContentRef parent = index.add(root, Tokens{1, 2}, 1);
  const ContentRef child = index.add(parent, Tokens{3, 4}, 2);
  // Block 1 gets other tokens while somebody still remembers what it was.
  index.drop(1, dropped);
  EXPECT_EQ(sorted(dropped), (std::vector<BlockId>{1, 2}));
  const ContentRef refilled = index.add(root, Tokens{9, 9}, 1);
  EXPECT_EQ(refilled.node, parent.node);
  EXPECT_EQ(index.best_child(refilled, Tokens{3, 4}).num_common, 0);
  EXPECT_EQ(index.best_child(parent, Tokens{3, 4}).num_common, 0);
  EXPECT_EQ(index.add(parent, Tokens{3, 4}, 2).id, 0U);  // computed after [1 2]: not to be found after [9 9]
  EXPECT_EQ(index.best_child(refilled, Tokens{3, 4}).num_common, 0);
  // Nor the other way round: what hangs under the new content is not found by who remembers the old one.
  index.add(refilled, Tokens{5, 6}, 3);
  EXPECT_EQ(index.best_child(refilled, Tokens{5, 6}).num_common, 2);
  EXPECT_EQ(index.best_child(parent, Tokens{5, 6}).num_common, 0);
  // Nor does the same content in the same block again.
  index.drop(1, dropped);
  const ContentRef again = index.add(root, Tokens{1, 2}, 1);
  EXPECT_NE(again.id, parent.id);
  EXPECT_FALSE(index.holds(parent));
  EXPECT_FALSE(index.holds(child));
  EXPECT_EQ(index.add(parent, Tokens{3, 4}, 2).id, 0U);
  EXPECT_EQ(index.best_child(again, Tokens{3, 4}).num_common, 0);
  EXPECT_EQ(index.broken_invariant(), std::nullopt);
}

TEST(PrefixIndex, ContentFiledTwiceKeepsTheFirstEntryAndItsChildrenHangThere) {
  PrefixIndex index(4, 1);
  const ContentRef root = index.open_domain("");
  const ContentRef first = index.add(root, Tokens{1}, 3);
  const ContentRef second = index.add(root, Tokens{1}, 4);
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(second.node, 3);
  EXPECT_EQ(index.content(4).id, 0U);
  index.add(second, Tokens{2}, 2);
  EXPECT_EQ(index.best_child(first, Tokens{2}).content.node, 2);
}

TEST(PrefixIndex, DroppingAContentDropsAllThatHangsUnderItAndNothingElse) {
  // Numbers in the order of filing, each under number / 2: a binary tree.
  for (BlockId dropped_first = 1; dropped_first <= 31; ++dropped_first) {
    PrefixIndex index(31, 1);
    std::vector<ContentRef> contents = {index.open_domain("")};
    for (BlockId block = 1; block <= 31; ++block) {
      contents.push_back(index.add(contents[static_cast<std::size_t>(block / 2)], Tokens{block}, block));
    }
    std::vector<BlockId> dropped;
    index.drop(dropped_first, dropped);
    std::vector<BlockId> expected;
    for (BlockId block = 1; block <= 31; ++block) {
      BlockId above = block;
      while (above > dropped_first) above /= 2;
      if (above == dropped_first) expected.push_back(block);
      EXPECT_EQ(index.holds(contents[static_cast<std::size_t>(block)]), above != dropped_first);
    }
    EXPECT_EQ(sorted(dropped), expected);
    EXPECT_EQ(index.broken_invariant(), std::nullopt);
  }
}

}  // namespace
}  // namespace folio
