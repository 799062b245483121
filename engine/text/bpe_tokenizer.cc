#include "engine/text/bpe_tokenizer.h"

#include "engine/gguf/gguf_file.h"
#include "engine/text/utf8.h"

namespace folio {
namespace {

constexpr const char* kMergesKey = "tokenizer.ggml.merges";

}  // namespace

void BpeTokenizer::MergeTable::reserve(std::size_t max_entries) {
  std::size_t size = 16;
  while (size < max_entries + max_entries / 2) size *= 2;
  entries_.resize(size);
}

std::size_t BpeTokenizer::MergeTable::slot_of(std::uint64_t pair) const {
  std::size_t i = static_cast<std::size_t>(pair * 0x9E3779B97F4A7C15U >> 32);
  while (true) {
    i &= entries_.size() - 1;
    if (entries_[i].pair == pair || entries_[i].pair == kEmpty) return i;
    ++i;
  }
}

void BpeTokenizer::MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  Entry& entry = entries_[slot_of(pair)];
  if (entry.pair == kEmpty) entry = {pair, merge};
}

Merge BpeTokenizer::MergeTable::find(std::int32_t left, std::int32_t right) const {
  if (left < 0 || right < 0) return {};
  const std::uint64_t pair = std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
  return entries_[slot_of(pair)].merge;  // an empty slot holds no merge
}

BpeTokenizer::BpeTokenizer(const GgufFile& file, const PreTokenizerRule& rule)
    : VocabularyTokenizer(file, Spelling::kByteLevel, rule.add_bos),
      pre_tokenizer_(rule),
      ignore_merges_(rule.ignore_merges),
      table_(static_cast<std::size_t>(vocabulary_.size())) {
  token_of_byte_.fill(-1);
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    if (vocabulary_.kind(id) == TokenKind::kNormal) table_.insert(vocabulary_.piece(id), id);
  }
  read_merges(file);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    symbol_of_byte_[byte] = table_.find({&c, 1});
    if (symbol_of_byte_[byte] < vocabulary_.size()) token_of_byte_[byte] = symbol_of_byte_[byte];
  }
}

std::int32_t BpeTokenizer::symbol_of(std::string_view bytes) {
  const std::int32_t known = table_.find(bytes);
  if (known >= 0) return known;
  const auto symbol = static_cast<std::int32_t>(static_cast<std::size_t>(vocabulary_.size()) + extra_.size());
  table_.insert(extra_.emplace_back(bytes), symbol);
  return symbol;
}

void BpeTokenizer::read_merges(const GgufFile& file) {
  const GgufArray& merges = file.get_array(kMergesKey);
  if (merges.strings.size() != merges.size) file.fail(std::string(kMergesKey) + " is not an array of strings");
  if (merges.size >= kNoMerge) file.fail(std::string(kMergesKey) + " has " + std::to_string(merges.size) + " merges");
  merges_.reserve(merges.strings.size());
  std::string joined;
  for (std::size_t rank = 0; rank < merges.strings.size(); ++rank) {
    const std::string_view merge = merges.strings[rank];
    const std::size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      file.fail(std::string(kMergesKey) + ": merge " + std::to_string(rank) + " is not two parts with a space between");
    }
    joined.clear();
    // A part outside of the byte alphabet never stands in a text.
    if (!append_byte_level(merge.substr(0, space), joined)) continue;
    const std::size_t cut = joined.size();
    if (!append_byte_level(merge.substr(space + 1), joined)) continue;
    const std::string_view bytes = joined;
    merges_.insert(symbol_of(bytes.substr(0, cut)), symbol_of(bytes.substr(cut)),
                   {static_cast<std::uint32_t>(rank), symbol_of(bytes)});
  }
}

void BpeTokenizer::encode_plain(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  std::size_t begin = 0;  // of the UTF-8 that is not yet encoded
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = utf8_length_at(text, i);
    if (length != 0) {
      i += length;
      continue;
    }
    encode_words(text.substr(begin, i - begin), scratch, out);
    const TokenId token = token_of_byte_[static_cast<unsigned char>(text[i])];
    if (token >= 0) out.push_back(token);
    begin = ++i;
  }
  encode_words(text.substr(begin), scratch, out);
}

void BpeTokenizer::encode_words(std::string_view text, Scratch& scratch, std::vector<TokenId>& out) const {
  // A text past PCRE2's limits is still encoded, in longer words.
  static_cast<void>(pre_tokenizer_.split(text, scratch.ends));
  std::size_t begin = 0;
  for (const std::uint32_t end : scratch.ends) {
    const std::string_view word = text.substr(begin, end - begin);
    scratch.words.append(word, [&] { encode_word(word, scratch.work, out); });
    begin = end;
  }
}

void BpeTokenizer::encode_word(std::string_view word, MergeWork& work, std::vector<TokenId>& out) const {
  if (ignore_merges_) {
    const std::int32_t symbol = table_.find(word);
    if (symbol >= 0 && symbol < vocabulary_.size()) {
      out.push_back(symbol);
      return;
    }
  }
  work.clear();
  for (std::size_t i = 0; i < word.size(); ++i) {
    work.add(symbol_of_byte_[static_cast<unsigned char>(word[i])], i, i + 1);
  }
  merge_nodes(work, [this](const MergeNode& l, const MergeNode& r) { return merges_.find(l.symbol, r.symbol); });
  for (std::int32_t i = 0; i >= 0; i = work.nodes[static_cast<std::size_t>(i)].next) {
    emit(work.nodes[static_cast<std::size_t>(i)], word, out);
  }
}

void BpeTokenizer::emit(const MergeNode& node, std::string_view word, std::vector<TokenId>& out) const {
  if (node.symbol >= 0 && node.symbol < vocabulary_.size()) {
    out.push_back(node.symbol);
    return;
  }
  for (const char c : word.substr(node.begin, node.end - node.begin)) {
    const TokenId token = token_of_byte_[static_cast<unsigned char>(c)];
    if (token >= 0) out.push_back(token);
  }
}

}  // namespace folio
