#include "engine/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>

namespace folio {
namespace {

using Words = std::vector<std::string>;

Words split(std::string_view name, std::string_view text) {
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(name);
  if (rule == nullptr) return {"no such rule"};
  std::vector<std::uint32_t> ends;
  if (!PreTokenizer(*rule).split(text, ends)) return {"a limit was hit"};
  Words words;
  std::size_t begin = 0;
  for (const std::uint32_t end : ends) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(split("gpt-2", "I've 2024 cats!?  "), (Words{"I", "'ve", " 2024", " cats", "!?", "  "}));
  EXPECT_EQ(split("gpt-2", "a   b"), (Words{"a", "  ", " b"}));
  EXPECT_EQ(split("gpt-2", "a\t\tb\n"), (Words{"a", "\t", "\t", "b", "\n"}));
  EXPECT_EQ(split("gpt-2", "DON'T don't"), (Words{"DON", "'", "T", " don", "'t"}));
  EXPECT_EQ(split("gpt-2", ""), Words{});
}

TEST(PreTokenizer, Smollm) {
  // Every digit alone; the space before it stays behind.
  EXPECT_EQ(split("smollm", "in 2024-11"), (Words{"in", " ", "2", "0", "2", "4", "-", "1", "1"}));
  EXPECT_EQ(split("smollm", "\xD9\xA3\xD9\xA4"), (Words{"\xD9\xA3", "\xD9\xA4"})) << "Arabic digits";
}

TEST(PreTokenizer, Llama3AndQwen2DifferInDigits) {
  EXPECT_EQ(split("llama-bpe", "12345 I'LL"), (Words{"123", "45", " I", "'LL"}));
  EXPECT_EQ(split("qwen2", "12345 I'LL"), (Words{"1", "2", "3", "4", "5", " I", "'LL"}));
  EXPECT_EQ(split("llama-bpe", "a.\n\n  b(x)"), (Words{"a", ".\n\n", " ", " b", "(x", ")"}));
  EXPECT_EQ(split("llama-bpe", "a  \n b"), (Words{"a", "  \n", " b"}));
}

TEST(PreTokenizer, Gpt4oAndTekkenCutWhereTheCaseChanges) {
  EXPECT_EQ(split("gpt-4o", "HelloWorld ABCdef it's"), (Words{"Hello", "World", " ABCdef", " it's"}));
  EXPECT_EQ(split("gpt-4o", "1234/\n"), (Words{"123", "4", "/\n"}));
  EXPECT_EQ(split("tekken", "it's 123"), (Words{"it", "'s", " ", "1", "2", "3"}));
  EXPECT_EQ(split("tekken", "\xC3\x89t\xC3\xA9 \xC3\xA9T"), (Words{"\xC3\x89t\xC3\xA9", " \xC3\xA9", "T"}));
}

TEST(PreTokenizer, Deepseek) {
  EXPECT_EQ(split("deepseek-v3", "x=_name 12345"), (Words{"x", "=_", "name", " ", "123", "45"}));
  EXPECT_EQ(split("deepseek-v3", "a\xE4\xB8\x80\xE4\xB8\x81z"), (Words{"a", "\xE4\xB8\x80\xE4\xB8\x81", "z"}));
  EXPECT_EQ(split("deepseek-coder", "if (a1)\n"), (Words{"if", " (", "a", "1", ")", "\n"}));
}

TEST(PreTokenizer, DefaultAndBloom) {
  EXPECT_EQ(split("default", "a+b 12345"), (Words{"a", "+", "b", " ", "123", "45"}));
  EXPECT_EQ(split("bloom", "Hello, big world!"), (Words{"Hello", ",", " big", " world", "!"}));
  EXPECT_EQ(split("viking", "in 20"), (Words{"in", " ", "2", "0"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  // U+00A0, U+2028 and U+3000 are white space; U+200B, U+FEFF and U+180E are not.
  for (const std::string space : {"\xC2\xA0", "\xE2\x80\xA8", "\xE3\x80\x80", "\xC2\x85"}) {
    EXPECT_EQ(split("gpt-2", "!" + space), (Words{"!", space}));
  }
  for (const std::string other : {"\xE2\x80\x8B", "\xEF\xBB\xBF", "\xE1\xA0\x8E"}) {
    EXPECT_EQ(split("gpt-2", "!" + other), Words{"!" + other});
  }
}

TEST(PreTokenizer, NamesAreDistinctAndUnknownOnesAreNotFound) {
  std::set<std::string_view> names;
  for (const PreTokenizerRule& rule : pre_tokenizer_rules()) {
    for (const std::string_view name : rule.names) EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(find_pre_tokenizer_rule("smollm-3"), nullptr);
  EXPECT_EQ(find_pre_tokenizer_rule(""), nullptr);
}

TEST(PreTokenizer, NoRuleHitsALimitOrLosesAByte) {
  const std::string parts[] = {"a",
                               "A",
                               "aB",
                               " ",
                               "7",
                               "\n",
                               "\t ",
                               " \n",
                               "!",
                               "'s",
                               "=x",
                               "\xF0\x9F\xA6\x99",
                               "\xE6\x97\xA5",
                               "e\xCC\x81",
                               "\xD9\xA3",
                               "A\xCC\x81 "};
  for (const PreTokenizerRule& rule : pre_tokenizer_rules()) {
    const PreTokenizer pre_tokenizer(rule);
    for (const std::string& part : parts) {
      std::string text;
      while (text.size() < 200'000) text += part;
      for (const char* tail : {"z", "\n"}) {
        std::vector<std::uint32_t> ends;
        EXPECT_TRUE(pre_tokenizer.split(text + tail, ends)) << rule.names[0] << " on many of " << part;
        ASSERT_EQ(ends.back(), (text + tail).size());
        EXPECT_TRUE(std::adjacent_find(ends.begin(), ends.end(), std::greater_equal<>()) == ends.end());
      }
    }
  }
}

TEST(PreTokenizer, WhatIsLeftAtALimitIsOneWord) {
  const PreTokenizerRule exponential = {{"none"}, {R"(x|(?:a|aa)+$)"}};
  const std::string text = "xx" + std::string(200, 'a') + "b x";
  std::vector<std::uint32_t> ends;
  EXPECT_FALSE(PreTokenizer(exponential).split(text, ends));
  EXPECT_EQ(ends, (std::vector<std::uint32_t>{1, 2, static_cast<std::uint32_t>(text.size())}));
}

}  // namespace
}  // namespace folio
