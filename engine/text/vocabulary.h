// What a file says about its tokens, read and checked once: spellings, the bytes they stand for, kinds, and the special
// ids. Keeps its own copy of the strings, so the file may be closed. Immutable after construction: any thread may read.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "engine/text/tokenizer.h"

namespace folio {

// How a normal token is spelled in the file.
enum class Spelling {
  kByteLevel,      // GPT-2's alphabet: one printable code point for each byte
  kSentencePiece,  // UTF-8 with U+2581 for a space
};

class Vocabulary {
 public:
  // Throws GgufError naming the key: missing or unequal arrays, ids out of range, kinds that the format does not know.
  //
  // Kinds are the file's, with one correction that llama.cpp makes too: a user-defined token spelled as the known ends
  // of a turn or a text (</s>, <|im_end|> ...) is a control token, so that text cannot forge one.
  Vocabulary(const GgufFile& file, Spelling spelling);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  TokenId size() const { return static_cast<TokenId>(kinds_.size()); }
  std::string_view spelling(TokenId id) const { return spellings_[static_cast<std::size_t>(id)]; }
  std::string_view piece(TokenId id) const { return pieces_[static_cast<std::size_t>(id)]; }
  TokenKind kind(TokenId id) const { return kinds_[static_cast<std::size_t>(id)]; }

  TokenId bos() const { return bos_; }  // -1: none named
  TokenId eos() const { return eos_; }
  TokenId unknown() const { return unknown_; }
  std::optional<bool> add_bos() const { return add_bos_; }
  std::span<const TokenId> end_ids() const { return end_ids_; }
  std::span<const std::string_view> control_spellings() const { return control_spellings_; }

 private:
  void read_spellings(const GgufFile& file);
  void read_kinds(const GgufFile& file);
  void make_pieces(Spelling spelling);
  TokenId read_id(const GgufFile& file, std::string_view key) const;
  void find_ends(const GgufFile& file);

  std::string spelling_bytes_;  // what spellings_ and pieces_ look at; never changed after they are set
  std::string piece_bytes_;
  std::vector<std::string_view> spellings_;
  std::vector<std::string_view> pieces_;
  std::vector<TokenKind> kinds_;
  TokenId bos_ = -1;
  TokenId eos_ = -1;
  TokenId unknown_ = -1;
  std::optional<bool> add_bos_;
  std::vector<TokenId> end_ids_;
  std::vector<std::string_view> control_spellings_;
};

// Appends the bytes that a spelling in GPT-2's alphabet stands for; false (and nothing appended) when it holds a code
// point outside of the alphabet.
bool append_byte_level(std::string_view spelling, std::string& out);

}  // namespace folio
