// The merging of both tokenizers against the naive rule, on random small vocabularies.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "tests/engine/text/vocabulary_builder.h"

namespace folio {
namespace {

using testing::encode;
using testing::VocabularyBuilder;

std::string random_letters(std::mt19937& random, std::size_t size) {
  std::string text(size, 'a');
  for (char& c : text) c = static_cast<char>('a' + random() % 3);
  return text;
}

// Lowest priority first, then leftmost, by looking at every pair each time.
std::vector<std::string> merge_naively(const std::string& word, const std::map<std::string, double>& order,
                                       bool pairs) {
  std::vector<std::string> parts;
  for (const char c : word) parts.emplace_back(1, c);
  while (true) {
    std::size_t best = parts.size();
    double best_order = 0;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      std::string key = parts[i];
      if (pairs) key.push_back(' ');
      const auto found = order.find(key.append(parts[i + 1]));
      if (found == order.end() || (best < parts.size() && found->second >= best_order)) continue;
      best = i;
      best_order = found->second;
    }
    if (best == parts.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// A long text of few words, so that most are met again: each begins with its space.
std::string random_words(std::mt19937& random) {
  std::string text;
  for (int i = 0; i < 300; ++i) text.append(1, ' ').append(random_letters(random, 1 + random() % 4));
  return text;
}

std::vector<std::string> merge_words_naively(const std::string& text, const std::map<std::string, double>& order,
                                             bool pairs) {
  std::vector<std::string> all;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(' ', begin + 1), text.size());
    const std::vector<std::string> parts = merge_naively(text.substr(begin, end - begin), order, pairs);
    all.insert(all.end(), parts.begin(), parts.end());
    begin = end;
  }
  return all;
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<std::string> pieces;
  for (const TokenId id : encode(tokenizer, text)) pieces.emplace_back(tokenizer.piece(id));
  return pieces;
}

TEST(BpeTokenizer, MergesAsTheNaiveRuleDoes) {
  std::mt19937 random(3);
  for (int vocabulary = 0; vocabulary < 40; ++vocabulary) {
    VocabularyBuilder builder;
    builder.add_bytes();
    std::map<std::string, double> rank;
    std::vector<std::string> parts = {"a", "b", "c"};
    for (int i = 0; i < 20; ++i) {
      const std::string left = parts[random() % parts.size()];
      const std::string right = parts[random() % parts.size()];
      std::string merge = left;
      merge.append(1, ' ').append(right);
      builder.merges.push_back(merge);
      rank.emplace(merge, i);
      if (std::find(parts.begin(), parts.end(), left + right) == parts.end()) {
        parts.push_back(left + right);
        builder.add(left + right);
      }
    }
    const auto tokenizer = builder.build();
    for (int i = 0; i < 50; ++i) {
      const std::string word = random_letters(random, 1 + random() % 40);
      ASSERT_EQ(pieces_of(*tokenizer, word), merge_naively(word, rank, true)) << word;
    }
    const std::string text = random_words(random);
    ASSERT_EQ(pieces_of(*tokenizer, text), merge_words_naively(text, rank, true));
  }
}

TEST(SpmTokenizer, MergesAsTheNaiveRuleDoes) {
  std::mt19937 random(4);
  for (int vocabulary = 0; vocabulary < 40; ++vocabulary) {
    VocabularyBuilder builder;
    builder.model = "llama";
    builder.extra.add_bool("tokenizer.ggml.add_space_prefix", false);
    for (const char* letter : {"a", "b", "c", "\xE2\x96\x81"}) builder.add(letter);
    std::map<std::string, double> order;
    for (int i = 0; i < 25; ++i) {
      const std::string piece = random_letters(random, 2 + random() % 4);
      const auto score = static_cast<float>(static_cast<int>(random() % 12) - 6);  // ties, both signs, zero
      if (order.emplace(piece, -score).second) builder.add(piece, TokenKind::kNormal, score);
    }
    const auto tokenizer = builder.build();
    for (int i = 0; i < 50; ++i) {
      const std::string word = random_letters(random, 1 + random() % 40);
      ASSERT_EQ(pieces_of(*tokenizer, word), merge_naively(word, order, false)) << word;
    }
    const std::string text = random_words(random);
    ASSERT_EQ(pieces_of(*tokenizer, text), merge_words_naively(text, order, false));
  }
}

}  // namespace
}  // namespace folio
