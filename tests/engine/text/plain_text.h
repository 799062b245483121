// Stop rules and UTF-8 repair said again in the plainest way: what the real ones are held against.
#pragma once
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/stop_checker.h"
#include "engine/text/tokenizer.h"

namespace folio {

// Token t of a fixed list of strings; one more is a control token and ends answers.
class PieceTokenizer : public Tokenizer {
 public:
  explicit PieceTokenizer(std::vector<std::string> pieces) : pieces_(std::move(pieces)) {
    pieces_.emplace_back("<|end|>");
    end_.push_back(static_cast<TokenId>(pieces_.size()) - 1);
  }
  void encode(std::string_view, bool, std::vector<TokenId>&) const override {
    throw std::logic_error("not used by the checker");
  }
  std::string_view piece(TokenId id) const override { return pieces_[static_cast<std::size_t>(id)]; }
  TokenKind kind(TokenId id) const override { return id == end_[0] ? TokenKind::kControl : TokenKind::kNormal; }
  TokenId vocab_size() const override { return static_cast<TokenId>(pieces_.size()); }
  TokenId bos() const override { return -1; }
  TokenId eos() const override { return end_[0]; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> end_ids() const override { return end_; }
  std::span<const std::string_view> control_spellings() const override { return {}; }
  TokenId end() const { return end_[0]; }

 private:
  std::vector<std::string> pieces_;
  std::vector<TokenId> end_;
};

struct StopOutcome {
  std::string text;
  StopVerdict verdict;
  std::int64_t num_tokens = 0;
};

// All text so far, every stop string at every place, token by token.
StopOutcome plain_stops(const PieceTokenizer& tokenizer, const StoppingParams& params,
                        const std::vector<TokenId>& tokens, bool skip_special);

// Whole string at once: at each place the longest prefix of a code point; whole ones stay, others become one U+FFFD.
std::string plain_utf8(const std::string& bytes);

}  // namespace folio
