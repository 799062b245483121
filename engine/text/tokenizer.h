// Text to token ids and back. One implementation per vocabulary kind of the file format: byte-level BPE
// (tokenizer.ggml.model "gpt2") and SentencePiece-style ("llama"). Immutable after construction: any thread may call.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace folio {

class GgufFile;

enum class TokenKind : std::uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

// What skip_special leaves out of a text: the spelling of these is a name, not text.
inline bool is_special(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Appends the ids of `text`. parse_special: spellings of control tokens become those tokens, else they are plain
  // text. User-defined tokens are matched always. Never adds BOS. Any bytes are taken; the rules for bytes without a
  // token, and for bytes that are not UTF-8, are in the implementations' headers.
  virtual void encode(std::string_view text, bool parse_special, std::vector<TokenId>& out) const = 0;

  // The exact bytes that this token adds to a text (a control token: its spelling). Valid for ids in [0, vocab_size).
  virtual std::string_view piece(TokenId id) const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  virtual TokenId vocab_size() const = 0;

  // From the file; -1 when it names none.
  virtual TokenId bos() const = 0;
  virtual TokenId eos() const = 0;
  virtual bool add_bos() const = 0;
  // Ids that end an answer: the file's eos, eot, eom, and control tokens spelled <|eot_id|>, <|im_end|>, <end_of_turn>,
  // <|endoftext|>, <|end|>. Sorted, distinct.
  virtual std::span<const TokenId> end_ids() const = 0;
  // Spellings of control tokens (type 3), for the chat template's marking.
  virtual std::span<const std::string_view> control_spellings() const = 0;
};

// Throws GgufError: unknown tokenizer model or pre-tokenizer by name, ids out of range, arrays of unequal length ...
std::unique_ptr<Tokenizer> make_tokenizer(const GgufFile& file);

}  // namespace folio
