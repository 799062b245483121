// Byte-level BPE (tokenizer.ggml.model "gpt2"): the pre-tokenizer's words, in each of them the merges of the file by
// rank (Sennrich, Haddow, Birch 2016; over bytes as in GPT-2). Time O(n log n) in the longest word.
//
// Bytes without a token (SmolLM2 has none for F1) are dropped silently, as llama.cpp does. Bytes that are not UTF-8 are
// each a word of their own, so that they come back as they were; UTF-8 text is not affected.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/piece_table.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/vocabulary_tokenizer.h"

namespace folio {

class BpeTokenizer final : public VocabularyTokenizer {
 public:
  // Throws GgufError, also for a merge that is not two parts with a space between.
  BpeTokenizer(const GgufFile& file, const PreTokenizerRule& rule);

 private:
  // A symbol is a token id or, from vocab_size on, a merged string without a token (spelled by its bytes in the end).
  // kNoSymbol: a byte that is in no token and no merge.
  static constexpr std::int32_t kNoSymbol = -1;

  // Open addressing over pairs of symbols.
  class MergeTable {
   public:
    void reserve(std::size_t max_entries);
    void insert(std::int32_t left, std::int32_t right, Merge merge);  // the first of a pair stays
    Merge find(std::int32_t left, std::int32_t right) const;

   private:
    struct Entry {
      std::uint64_t pair = kEmpty;
      Merge merge;
    };
    static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
    std::size_t slot_of(std::uint64_t pair) const;
    std::vector<Entry> entries_;
  };

  void read_merges(const GgufFile& file);
  std::int32_t symbol_of(std::string_view bytes);
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const override;
  void encode_words(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const;
  void encode_word(std::string_view word, MergeWork& work, std::vector<TokenId>& out) const;
  void emit(const MergeNode& node, std::string_view word, std::vector<TokenId>& out) const;

  const PreTokenizer pre_tokenizer_;
  const bool ignore_merges_;
  PieceTable table_;               // bytes of normal tokens, and of merged strings without a token -> symbol
  std::deque<std::string> extra_;  // the latter's bytes
  std::array<std::int32_t, 256> symbol_of_byte_;
  std::array<TokenId, 256> token_of_byte_;  // -1: none
  MergeTable merges_;
};

}  // namespace folio
