// What the two tokenizers share: the vocabulary, and cutting a text at its special tokens. The plain text between them
// is the subclass's.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/merge.h"
#include "engine/text/special_matcher.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocabulary.h"
#include "engine/text/word_cache.h"

namespace folio {

class VocabularyTokenizer : public Tokenizer {
 public:
  // User-defined tokens are matched always; control tokens and those of kind unknown with parse_special only. White
  // space around them is text like any other: files do not carry the strip flags that some tokenizer.json files have.
  // REQUIRES: fewer than 2^31 bytes (checked).
  void encode(std::string_view text, bool parse_special, std::vector<TokenId>& out) const final;

  std::string_view piece(TokenId id) const final { return vocabulary_.piece(id); }
  TokenKind kind(TokenId id) const final { return vocabulary_.kind(id); }
  TokenId vocab_size() const final { return vocabulary_.size(); }
  TokenId bos() const final { return vocabulary_.bos(); }
  TokenId eos() const final { return vocabulary_.eos(); }
  bool add_bos() const final { return add_bos_; }
  std::span<const TokenId> end_ids() const final { return vocabulary_.end_ids(); }
  std::span<const std::string_view> control_spellings() const final { return vocabulary_.control_spellings(); }

 protected:
  VocabularyTokenizer(const GgufFile& file, Spelling spelling, bool add_bos_by_default);

  // What one encode() uses again and again.
  struct Scratch {
    WordCache words;
    MergeWork work;
    std::vector<std::uint32_t> ends;
    std::string spelled;
  };

  // Appends the ids of a part of the text without special tokens, not empty.
  virtual void encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const = 0;

  const Vocabulary vocabulary_;

 private:
  bool add_bos_;
  SpecialMatcher user_defined_;
  SpecialMatcher all_special_;
};

}  // namespace folio
