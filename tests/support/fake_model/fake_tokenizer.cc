#include "tests/support/fake_model/fake_tokenizer.h"

namespace folio {

FakeTokenizer::FakeTokenizer(TokenId vocab_size) {
  for (TokenId id = 0; id < vocab_size; ++id) pieces_.emplace_back(1, static_cast<char>('a' + id % 26));
}

void FakeTokenizer::encode(std::string_view text, bool, std::vector<TokenId>& out) const {
  for (char c : text) out.push_back(static_cast<TokenId>(c - 'a'));
}

}  // namespace folio
