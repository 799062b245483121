// A tokenizer for tests of the chat template: ids 0-255 are the bytes, then come control tokens in the given order.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "engine/text/tokenizer.h"

namespace folio {

class FakeTokenizer final : public Tokenizer {
 public:
  static constexpr TokenId kFirstControl = 256;

  // `bos` and `eos` are spellings among `controls`, or empty: none.
  explicit FakeTokenizer(std::vector<std::string> controls, const std::string& bos = "", const std::string& eos = "",
                         bool add_bos = false)
      : add_bos_(add_bos) {
    for (int byte = 0; byte < kFirstControl; ++byte) pieces_.emplace_back(1, static_cast<char>(byte));
    for (std::string& control : controls) {
      if (control == bos && !bos.empty()) bos_ = vocab_size();
      if (control == eos && !eos.empty()) eos_ = vocab_size();
      pieces_.push_back(std::move(control));
    }
    for (std::size_t i = kFirstControl; i < pieces_.size(); ++i) spellings_.push_back(pieces_[i]);
  }

  void encode(std::string_view text, bool parse_special, std::vector<TokenId>& out) const override {
    for (std::size_t i = 0; i < text.size();) {
      TokenId best = static_cast<unsigned char>(text[i]);
      for (TokenId id = kFirstControl; parse_special && id < vocab_size(); ++id) {
        const bool longer = best < kFirstControl || piece(id).size() > piece(best).size();
        if (longer && text.substr(i).starts_with(piece(id))) best = id;
      }
      out.push_back(best);
      i += piece(best).size();
    }
  }
  std::string_view piece(TokenId id) const override { return pieces_[static_cast<std::size_t>(id)]; }
  TokenKind kind(TokenId id) const override { return id < kFirstControl ? TokenKind::kByte : TokenKind::kControl; }
  TokenId vocab_size() const override { return static_cast<TokenId>(pieces_.size()); }
  TokenId bos() const override { return bos_; }
  TokenId eos() const override { return eos_; }
  bool add_bos() const override { return add_bos_; }
  std::span<const TokenId> end_ids() const override { return {}; }
  std::span<const std::string_view> control_spellings() const override { return spellings_; }

  TokenId id_of(std::string_view control) const {
    for (TokenId id = kFirstControl; id < vocab_size(); ++id) {
      if (piece(id) == control) return id;
    }
    return -1;
  }
  std::vector<TokenId> special(std::string_view text) const {
    std::vector<TokenId> out;
    encode(text, true, out);
    return out;
  }
  std::vector<TokenId> plain(std::string_view text) const {
    std::vector<TokenId> out;
    encode(text, false, out);
    return out;
  }
  std::string text_of(const std::vector<TokenId>& ids) const {
    std::string out;
    for (const TokenId id : ids) out += piece(id);
    return out;
  }

 private:
  std::vector<std::string> pieces_;
  std::vector<std::string_view> spellings_;
  TokenId bos_ = -1;
  TokenId eos_ = -1;
  bool add_bos_;
};

}  // namespace folio
