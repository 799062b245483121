// Splits a text into words, inside which byte-level BPE merges, by the rule that a file names in tokenizer.ggml.pre. A
// rule is a list of regular expressions (PCRE2, UTF and UCP); each pass splits every part of the text so far into its
// matches and what lies between them. Rules are the published ones of the models' own tokenizers, as llama.cpp maps
// the names to them. White space (\s) is Unicode's White_Space, which PCRE2's own \s is not quite (U+180E).
//
// Immutable after construction: any thread may split.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace folio {

struct PreTokenizerRule {
  std::vector<std::string_view> names;  // of tokenizer.ggml.pre
  std::vector<const char*> passes;      // \s and \S stand for White_Space and its complement
  bool ignore_merges = false;           // a word that is a token is that token, whatever the merges give
  bool add_bos = false;                 // when the file does not say
};

// Null for a name that folio does not know.
const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name);
std::span<const PreTokenizerRule> pre_tokenizer_rules();

class PreTokenizer {
 public:
  explicit PreTokenizer(const PreTokenizerRule& rule);
  ~PreTokenizer();
  PreTokenizer(const PreTokenizer&) = delete;
  PreTokenizer& operator=(const PreTokenizer&) = delete;

  // `ends` becomes the end offset of each word of `text`, in order. REQUIRES: valid UTF-8. Time and memory are bounded
  // by PCRE2's match and heap limits, and no match uses the thread's stack. False when a limit was hit: what was left
  // then is one word (the ids are still those of the text's bytes, joined in another way).
  bool split(std::string_view text, std::vector<std::uint32_t>& ends) const;

 private:
  class Regex;
  std::vector<std::unique_ptr<const Regex>> passes_;
};

}  // namespace folio
