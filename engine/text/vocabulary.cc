#include "engine/text/vocabulary.h"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/gguf/gguf_file.h"
#include "engine/text/utf8.h"

namespace folio {
namespace {

constexpr const char* kTokensKey = "tokenizer.ggml.tokens";
constexpr const char* kTypesKey = "tokenizer.ggml.token_type";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Control tokens of these spellings end an answer ...
constexpr std::array<std::string_view, 5> kEndSpellings = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|endoftext|>",
                                                           "<|end|>"};
// ... and of these too are control tokens where a file calls them user-defined.
constexpr std::array<std::string_view, 5> kOtherControlSpellings = {"</s>", "<eos>", "<|eom_id|>", "<|end_of_text|>",
                                                                    "<EOT>"};

template <class List>
bool contains(const List& list, std::string_view s) {
  return std::find(list.begin(), list.end(), s) != list.end();
}

// GPT-2's alphabet: the printable bytes of Latin-1 stand for themselves, the other 68 for U+0100 onwards, in order.
std::array<std::int16_t, 0x144> make_alphabet() {
  std::array<std::int16_t, 0x144> byte_of;
  byte_of.fill(-1);
  std::size_t next = 0x100;
  for (std::int16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    byte_of[printable ? static_cast<std::size_t>(byte) : next++] = byte;
  }
  return byte_of;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// <0xNN>; -1 if it is spelled otherwise.
int byte_of_spelling(std::string_view s) {
  if (s.size() != 6 || s.substr(0, 3) != "<0x" || s[5] != '>') return -1;
  const int high = hex_digit(s[3]);
  const int low = hex_digit(s[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

void append_without_marks(std::string_view spelling, std::string& out) {
  for (std::size_t mark; (mark = spelling.find(kSpaceMark)) != std::string_view::npos;) {
    out.append(spelling.substr(0, mark)).push_back(' ');
    spelling.remove_prefix(mark + kSpaceMark.size());
  }
  out.append(spelling);
}

}  // namespace

bool append_byte_level(std::string_view spelling, std::string& out) {
  static const std::array<std::int16_t, 0x144> byte_of = make_alphabet();
  const std::size_t before = out.size();
  for (std::size_t i = 0; i < spelling.size();) {
    const std::size_t length = utf8_length_at(spelling, i);
    std::size_t code = byte_of.size();
    if (length == 1) code = static_cast<unsigned char>(spelling[i]);
    if (length == 2) code = (static_cast<std::size_t>(spelling[i]) & 0x1F) << 6 | (spelling[i + 1] & 0x3F);
    if (code >= byte_of.size() || byte_of[code] < 0) {
      out.resize(before);
      return false;
    }
    out.push_back(static_cast<char>(byte_of[code]));
    i += length;
  }
  return true;
}

Vocabulary::Vocabulary(const GgufFile& file, Spelling spelling) {
  read_spellings(file);
  read_kinds(file);
  for (TokenId id = 0; id < size(); ++id) {
    if (kind(id) == TokenKind::kByte && byte_of_spelling(this->spelling(id)) < 0) {
      file.fail(std::string(kTokensKey) + ": token " + std::to_string(id) +
                " is a byte token, but is not spelled <0xNN>");
    }
    if (kind(id) == TokenKind::kControl && !this->spelling(id).empty()) {
      control_spellings_.push_back(this->spelling(id));
    }
  }
  make_pieces(spelling);
  bos_ = read_id(file, "tokenizer.ggml.bos_token_id");
  eos_ = read_id(file, "tokenizer.ggml.eos_token_id");
  unknown_ = read_id(file, "tokenizer.ggml.unknown_token_id");
  add_bos_ = file.find_bool("tokenizer.ggml.add_bos_token");
  if (add_bos_.value_or(false) && bos_ < 0) {
    file.fail("tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  }
  find_ends(file);
}

void Vocabulary::read_spellings(const GgufFile& file) {
  const GgufArray& tokens = file.get_array(kTokensKey);
  if (tokens.strings.size() != tokens.size) file.fail(std::string(kTokensKey) + " is not an array of strings");
  if (tokens.size == 0) file.fail(std::string(kTokensKey) + " is empty");
  if (tokens.size > static_cast<std::uint64_t>(std::numeric_limits<TokenId>::max())) {
    file.fail(std::string(kTokensKey) + " has " + std::to_string(tokens.size) + " tokens, more than an id can count");
  }
  std::size_t num_bytes = 0;
  for (const std::string_view s : tokens.strings) num_bytes += s.size();
  spelling_bytes_.reserve(num_bytes);
  spellings_.reserve(tokens.strings.size());
  for (const std::string_view s : tokens.strings) {
    const std::size_t begin = spelling_bytes_.size();
    spelling_bytes_.append(s);
    spellings_.emplace_back(spelling_bytes_.data() + begin, s.size());
  }
}

void Vocabulary::read_kinds(const GgufFile& file) {
  kinds_.assign(spellings_.size(), TokenKind::kNormal);
  const GgufArray* types = file.find_array(kTypesKey);
  if (types == nullptr) return;
  if (types->size != spellings_.size()) {
    file.fail(std::string(kTypesKey) + " has " + std::to_string(types->size) + " values, but " + kTokensKey + " has " +
              std::to_string(spellings_.size()));
  }
  for (std::size_t id = 0; id < kinds_.size(); ++id) {
    const std::optional<std::int64_t> type = types->int_at(id);
    if (!type) file.fail(std::string(kTypesKey) + " is not an array of integers");
    if (*type < 0 || *type > static_cast<std::int64_t>(TokenKind::kByte)) {
      file.fail(std::string(kTypesKey) + ": token " + std::to_string(id) + " has type " + std::to_string(*type) +
                ", not one of 0 to 6");
    }
    if (*type != 0) kinds_[id] = static_cast<TokenKind>(*type);  // 0: undefined, taken as normal
    if (kinds_[id] == TokenKind::kUserDefined &&
        (contains(kEndSpellings, spellings_[id]) || contains(kOtherControlSpellings, spellings_[id]))) {
      kinds_[id] = TokenKind::kControl;
    }
  }
}

void Vocabulary::make_pieces(Spelling spelling) {
  piece_bytes_.reserve(spelling_bytes_.size());  // no piece is longer than its spelling
  pieces_.reserve(spellings_.size());
  for (std::size_t id = 0; id < kinds_.size(); ++id) {
    const std::size_t begin = piece_bytes_.size();
    switch (kinds_[id]) {
      case TokenKind::kByte:
        piece_bytes_.push_back(static_cast<char>(byte_of_spelling(spellings_[id])));
        break;
      case TokenKind::kNormal:
      case TokenKind::kUnused:
        if (spelling == Spelling::kSentencePiece) {
          append_without_marks(spellings_[id], piece_bytes_);
        } else if (!append_byte_level(spellings_[id], piece_bytes_)) {
          piece_bytes_.append(spellings_[id]);
        }
        break;
      case TokenKind::kControl:
      case TokenKind::kUnknown:
      case TokenKind::kUserDefined:
        piece_bytes_.append(spellings_[id]);
        break;
    }
    pieces_.emplace_back(piece_bytes_.data() + begin, piece_bytes_.size() - begin);
  }
}

TokenId Vocabulary::read_id(const GgufFile& file, std::string_view key) const {
  const std::optional<std::uint64_t> id = file.find_uint(key);
  if (!id) return -1;
  if (*id >= kinds_.size()) {
    file.fail(std::string(key) + " is " + std::to_string(*id) + ", but " + kTokensKey + " has " +
              std::to_string(kinds_.size()) + " tokens");
  }
  return static_cast<TokenId>(*id);
}

void Vocabulary::find_ends(const GgufFile& file) {
  end_ids_ = {eos_, read_id(file, "tokenizer.ggml.eot_token_id"), read_id(file, "tokenizer.ggml.eom_token_id")};
  for (TokenId id = 0; id < size(); ++id) {
    if (kind(id) == TokenKind::kControl && contains(kEndSpellings, spelling(id))) end_ids_.push_back(id);
  }
  std::sort(end_ids_.begin(), end_ids_.end());
  end_ids_.erase(std::unique(end_ids_.begin(), end_ids_.end()), end_ids_.end());
  if (end_ids_.front() < 0) end_ids_.erase(end_ids_.begin());
}

}  // namespace folio
