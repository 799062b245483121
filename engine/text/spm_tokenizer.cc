#include "engine/text/spm_tokenizer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>

#include "engine/gguf/gguf_file.h"
#include "engine/text/utf8.h"

namespace folio {
namespace {

constexpr const char* kScoresKey = "tokenizer.ggml.scores";
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Orders as the scores do, highest first. Never kNoMerge: that would be a NaN.
std::uint32_t priority_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0F);  // one zero
  return (bits >> 31) != 0 ? bits : ~(bits | 0x80000000U);
}

void append_spelled(std::string_view text, std::string& out) {
  for (const char c : text) {
    if (c == ' ') {
      out.append(kSpaceMark);
    } else {
      out.push_back(c);
    }
  }
}

}  // namespace

SpmTokenizer::SpmTokenizer(const GgufFile& file)
    : VocabularyTokenizer(file, Spelling::kSentencePiece, true),
      add_space_prefix_(file.find_bool("tokenizer.ggml.add_space_prefix").value_or(true)),
      table_(static_cast<std::size_t>(vocabulary_.size())) {
  read_scores(file);
  byte_tokens_.fill(-1);
  const TokenId unknown = vocabulary_.unknown();
  if (unknown >= 0 && vocabulary_.kind(unknown) == TokenKind::kUnknown) unknown_ = unknown;
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view spelled = vocabulary_.spelling(id);
    const TokenKind kind = vocabulary_.kind(id);
    if (kind == TokenKind::kByte) byte_tokens_[static_cast<unsigned char>(vocabulary_.piece(id)[0])] = id;
    if (spelled.empty() || (kind != TokenKind::kNormal && kind != TokenKind::kUserDefined)) continue;
    table_.insert(spelled, id);
    max_piece_size_ = std::max(max_piece_size_, spelled.size());
    for (std::size_t mark = 0; (mark = spelled.find(kSpaceMark, mark + 1)) != std::string_view::npos;) {
      joins_space_.set(static_cast<unsigned char>(spelled[mark - 1]));
    }
  }
}

void SpmTokenizer::read_scores(const GgufFile& file) {
  const GgufArray& scores = file.get_array(kScoresKey);
  const auto num_tokens = static_cast<std::size_t>(vocabulary_.size());
  if (scores.size != num_tokens) {
    file.fail(std::string(kScoresKey) + " has " + std::to_string(scores.size) +
              " values, but tokenizer.ggml.tokens has " + std::to_string(num_tokens));
  }
  priority_.reserve(num_tokens);
  for (std::size_t id = 0; id < num_tokens; ++id) {
    const std::optional<double> score = scores.float_at(id);
    if (!score) file.fail(std::string(kScoresKey) + " is not an array of numbers");
    if (std::isnan(*score))
      file.fail(std::string(kScoresKey) + ": token " + std::to_string(id) + " has no number (NaN)");
    priority_.push_back(priority_of(static_cast<float>(*score)));
  }
}

void SpmTokenizer::encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  std::size_t begin = 0;
  const auto append = [&](std::size_t end) {
    const std::string_view word = text.substr(begin, end - begin);
    if (begin == 0 && add_space_prefix_) {
      encode_word(word, true, scratch, out);
    } else {
      scratch.words.append(word, [&] { encode_word(word, false, scratch, out); });
    }
    begin = end;
  };
  for (std::size_t space = 0; (space = text.find(' ', space + 1)) != std::string_view::npos;) {
    const char before = text[space - 1] == ' ' ? kSpaceMark.back() : text[space - 1];
    if (!joins_space_[static_cast<unsigned char>(before)]) append(space);
  }
  append(text.size());
}

void SpmTokenizer::encode_word(std::string_view text, bool space_before, Scratch& scratch,
                               std::vector<TokenId>& out) const {
  scratch.spelled.clear();
  if (space_before) scratch.spelled.append(kSpaceMark);
  append_spelled(text, scratch.spelled);
  const std::string_view word = scratch.spelled;
  MergeWork& work = scratch.work;
  work.clear();
  for (std::size_t i = 0; i < word.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length_at(word, i), 1);
    work.add(table_.find(word.substr(i, length)), i, i + length);
    i += length;
  }
  merge_nodes(work, [&](const MergeNode& left, const MergeNode& right) -> Merge {
    const std::size_t size = right.end - left.begin;
    const TokenId id = size > max_piece_size_ ? -1 : table_.find(word.substr(left.begin, size));
    if (id < 0) return {};
    return {priority_[static_cast<std::size_t>(id)], id};
  });
  for (std::int32_t i = 0; i >= 0; i = work.nodes[static_cast<std::size_t>(i)].next) {
    emit(work.nodes[static_cast<std::size_t>(i)], word, out);
  }
}

void SpmTokenizer::emit(const MergeNode& node, std::string_view word, std::vector<TokenId>& out) const {
  if (node.symbol >= 0) {
    out.push_back(node.symbol);
    return;
  }
  for (std::size_t i = node.begin; i < node.end; ++i) {
    const TokenId token = byte_tokens_[static_cast<unsigned char>(word[i])];
    if (token >= 0) {
      out.push_back(token);
    } else if (i == node.begin && unknown_ >= 0) {
      out.push_back(unknown_);
      return;
    }
  }
}

}  // namespace folio
