// SentencePiece-style BPE (tokenizer.ggml.model "llama"): the neighbouring pair whose joined piece has the highest
// score is joined first, of equal ones the leftmost (Kudo, Richardson 2018). Characters without a piece become their
// byte tokens <0xNN>, without those the unknown token, and nothing if the file has neither. Spaces are U+2581 in
// pieces, so U+2581 in a text is the same as a space; tokenizer.ggml.add_space_prefix (true when absent) puts a space
// before the text and after each special token. Text never becomes a control, unknown, byte or unused piece by its
// spelling. Bytes that are not UTF-8 are characters of one byte, so that they come back as they were.
//
// Why not libsentencepiece: it admits one unknown piece (phi-3's vocabulary has 53), replaces bytes that are not UTF-8,
// wants a model file made up from the GGUF, and Debian's build exports a protobuf of its own beside the server's.
//
// Time O(n log n). A text is merged word by word where that is exact: no piece holds the byte before the space and the
// space together.
#pragma once
#include <array>
#include <bitset>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/text/piece_table.h"
#include "engine/text/vocabulary_tokenizer.h"

namespace folio {

class SpmTokenizer final : public VocabularyTokenizer {
 public:
  explicit SpmTokenizer(const GgufFile& file);  // throws GgufError

 private:
  void read_scores(const GgufFile& file);
  void encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const override;
  void encode_word(std::string_view text, bool space_before, Scratch& scratch, std::vector<TokenId>& out) const;
  void emit(const MergeNode& node, std::string_view word, std::vector<TokenId>& out) const;

  const bool add_space_prefix_;
  PieceTable table_;                      // spellings of the pieces that text may become
  std::vector<std::uint32_t> priority_;   // [vocab] of joining to this piece: lower for a higher score
  std::size_t max_piece_size_ = 0;        // bytes
  std::bitset<256> joins_space_;          // bytes that stand before a space inside of some piece
  std::array<TokenId, 256> byte_tokens_;  // -1: none
  TokenId unknown_ = -1;                  // the file's, if it is of that kind (never a control token)
};

}  // namespace folio
