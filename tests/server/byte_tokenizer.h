// A vocabulary for tests: ids 0..255 are the bytes, then a begin token, an end token, and pieces that are parts of
// characters or several characters long.
#pragma once
#include <array>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"

namespace folio::test {

inline constexpr TokenId kBos = 256;        // "<s>", control
inline constexpr TokenId kEnd = 257;        // "<|im_end|>", control, ends an answer
inline constexpr TokenId kHalfEmoji = 258;  // F0 9F
inline constexpr TokenId kHello = 259;      // "hello"
inline constexpr TokenId kUnknown = 260;    // "<unk>", unknown
inline constexpr TokenId kVocabSize = 261;

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() {
    for (std::size_t i = 0; i < 256; ++i) pieces_[i] = std::string(1, static_cast<char>(i));
    pieces_[kBos] = "<s>";
    pieces_[kEnd] = "<|im_end|>";
    pieces_[kHalfEmoji] = "\xF0\x9F";
    pieces_[kHello] = "hello";
    pieces_[kUnknown] = "<unk>";
  }

  void encode(std::string_view text, bool parse_special, std::vector<TokenId>& out) const override {
    wait_while_held();
    while (!text.empty()) {
      if (parse_special && text.starts_with(pieces_[kEnd])) {
        out.push_back(kEnd);
        text.remove_prefix(pieces_[kEnd].size());
        continue;
      }
      out.push_back(static_cast<unsigned char>(text.front()));
      text.remove_prefix(1);
    }
  }
  std::string_view piece(TokenId id) const override { return pieces_[static_cast<std::size_t>(id)]; }
  TokenKind kind(TokenId id) const override {
    if (id == kUnknown) return TokenKind::kUnknown;
    return id == kBos || id == kEnd ? TokenKind::kControl : TokenKind::kNormal;
  }
  TokenId vocab_size() const override { return kVocabSize; }
  TokenId bos() const override { return kBos; }
  TokenId eos() const override { return kEnd; }
  bool add_bos() const override { return false; }
  std::span<const TokenId> end_ids() const override { return end_ids_; }
  std::span<const std::string_view> control_spellings() const override { return control_; }

  // While held, encode() blocks: a prompt that takes long.
  void hold(bool held) {
    {
      const std::lock_guard lock(mutex_);
      held_ = held;
    }
    changed_.notify_all();
  }
  void wait_until_encoding() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_waiting_ > 0; });
  }

 private:
  void wait_while_held() const {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !held_; });
    --num_waiting_;
  }

  std::array<std::string, kVocabSize> pieces_;
  const std::array<TokenId, 1> end_ids_{kEnd};
  const std::array<std::string_view, 2> control_{"<s>", "<|im_end|>"};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool held_ = false;
  mutable int num_waiting_ = 0;
};

}  // namespace folio::test
