// Token i is the letter 'a' + i % 26, token 0 ends an answer. For tests that need text, not a vocabulary.
#pragma once
#include <string>
#include <vector>

#include "engine/text/tokenizer.h"

namespace folio {

class FakeTokenizer final : public Tokenizer {
 public:
  explicit FakeTokenizer(TokenId vocab_size);

  void encode(std::string_view text, bool parse_special, std::vector<TokenId>& out) const override;
  std::string_view piece(TokenId id) const override { return pieces_.at(static_cast<std::size_t>(id)); }
  TokenKind kind(TokenId) const override { return TokenKind::kNormal; }
  TokenId vocab_size() const override { return static_cast<TokenId>(pieces_.size()); }
  TokenId bos() const override { return -1; }
  TokenId eos() const override { return 0; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> end_ids() const override { return end_ids_; }
  std::span<const std::string_view> control_spellings() const override { return {}; }

 private:
  std::vector<std::string> pieces_;
  std::vector<TokenId> end_ids_ = {0};
};

}  // namespace folio
