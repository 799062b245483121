#include "engine/text/vocabulary_tokenizer.h"

#include "base/check.h"

namespace folio {

VocabularyTokenizer::VocabularyTokenizer(const GgufFile& file, Spelling spelling, bool add_bos_by_default)
    : vocabulary_(file, spelling),
      add_bos_(vocabulary_.add_bos().value_or(add_bos_by_default && vocabulary_.bos() >= 0)) {
  for (TokenId id = 0; id < vocabulary_.size(); ++id) {
    const std::string_view spelled = vocabulary_.spelling(id);
    const TokenKind kind = vocabulary_.kind(id);
    if (spelled.empty()) continue;
    if (kind == TokenKind::kUserDefined) user_defined_.add(spelled, id);
    if (kind == TokenKind::kUserDefined || kind == TokenKind::kControl || kind == TokenKind::kUnknown) {
      all_special_.add(spelled, id);
    }
  }
}

void VocabularyTokenizer::encode(std::string_view text, bool parse_special, std::vector<TokenId>& out) const {
  FOLIO_CHECK(text.size() < (std::size_t{1} << 31), "the fronts bound the size of a text");
  const SpecialMatcher& matcher = parse_special ? all_special_ : user_defined_;
  Scratch scratch{WordCache(text.size(), out), {}, {}, {}};
  for (std::size_t position = 0; position < text.size();) {
    const SpecialMatcher::Match match = matcher.find(text, position);
    const std::size_t plain_end = match.id < 0 ? text.size() : match.begin;
    if (plain_end > position) encode_plain(text.substr(position, plain_end - position), scratch, out);
    if (match.id < 0) return;
    out.push_back(match.id);
    position = match.end;
  }
}

}  // namespace folio
