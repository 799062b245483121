// Fuzz target: stop rules and a run of tokens whose pieces are any bytes. The stop checker, with its text through
// Utf8Stream, is held against the same rules said plainly (tests/engine/text/plain_text.h); what it holds back is what
// may still begin a stop string, and no byte more.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "engine/text/detokenizer.h"
#include "engine/text/stop_checker.h"
#include "tests/engine/text/plain_text.h"
#include "tests/fuzz/fuzz_target.h"

namespace folio {
namespace {

struct Case {
  std::vector<std::string> pieces;
  StoppingParams params;
  bool skip_special = true;
  std::vector<TokenId> tokens;
};

Case read_case(FuzzBytes& in) {
  Case c;
  for (std::uint32_t i = in.below(8); i > 0; --i) c.pieces.push_back(in.string(in.below(6)));
  for (std::uint32_t i = in.below(5); i > 0; --i) c.params.stop.push_back(in.string(1 + in.below(9)));
  const auto num_tokens = static_cast<std::uint32_t>(c.pieces.size() + 1);
  for (std::uint32_t i = in.below(3); i > 0; --i) {
    c.params.stop_token_ids.push_back(static_cast<TokenId>(in.below(num_tokens)));
  }
  c.params.min_tokens = in.below(6);
  c.params.max_tokens = in.flag() ? 1 + in.below(20) : StoppingParams::kNoLimit;
  c.params.ignore_eos = in.flag();
  c.params.include_stop = in.flag();
  c.skip_special = in.flag();
  while (!in.empty() && c.tokens.size() < 200) c.tokens.push_back(static_cast<TokenId>(in.below(num_tokens)));
  return c;
}

// Bytes at the end of the text that may be the beginning of a stop string.
std::size_t num_open(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t open = 0;
  for (const std::string& stop : stops) {
    for (std::size_t size = open + 1; size < stop.size() && size <= text.size(); ++size) {
      if (text.compare(text.size() - size, size, stop, 0, size) == 0) open = size;
    }
  }
  return open;
}

void check_masked(const StopChecker& checker, const Case& c, const PieceTokenizer& tokenizer) {
  std::vector<TokenId> expected;
  if (checker.num_tokens() < c.params.min_tokens) {
    expected = c.params.stop_token_ids;
    if (!c.params.ignore_eos) expected.push_back(tokenizer.end());
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
  }
  fuzz_require(std::ranges::equal(checker.masked(checker.num_tokens()), expected), "what is masked");
}

void check(const Case& c) {
  const PieceTokenizer tokenizer(c.pieces);
  StopChecker checker(std::make_shared<const StopRules>(tokenizer, c.params, c.skip_special), c.params.max_tokens);
  Utf8Stream stream;
  std::string bytes;  // released so far
  std::string text;
  std::string all;  // of the tokens so far
  StopVerdict verdict;
  for (const TokenId token : c.tokens) {
    check_masked(checker, c, tokenizer);
    std::string released;
    verdict = checker.push(token, released);
    const std::size_t before = text.size();
    stream.push(released, text);
    fuzz_require(is_valid_utf8(text.substr(before)), "a delta is whole");
    bytes += released;
    if (verdict.finish != FinishReason::kNone) break;
    if (!c.skip_special || token != tokenizer.end()) all += tokenizer.piece(token);
    fuzz_require(bytes == all.substr(0, all.size() - num_open(all, c.params.stop)), "what is held back");
  }
  if (verdict.finish == FinishReason::kNone) {
    std::string released;
    checker.finish(released);
    stream.push(released, text);
    bytes += released;
  }
  stream.finish(text);

  const StopOutcome plain = plain_stops(tokenizer, c.params, c.tokens, c.skip_special);
  fuzz_require(verdict.finish == plain.verdict.finish, "how it ended");
  fuzz_require(verdict.stop_token == plain.verdict.stop_token, "the stop token");
  fuzz_require(verdict.stop_index == plain.verdict.stop_index, "the stop string");
  fuzz_require(checker.num_tokens() == plain.num_tokens, "the number of tokens");
  fuzz_require(bytes == plain.text, "its bytes");
  fuzz_require(text == plain_utf8(plain.text), "its text");
  fuzz_require(is_valid_utf8(plain.text) == (text == plain.text), "whether the bytes were text");
}

// The cut is at most max_bytes long, at the edge of a code point, and no edge is between the two.
void check_truncation(const std::string& text, std::size_t max_bytes) {
  const std::string_view cut = truncate_utf8(text, max_bytes);
  fuzz_require(cut.size() <= max_bytes && text.starts_with(cut) && is_valid_utf8(cut), "a cut at an edge");
  for (std::size_t size = cut.size() + 1; size <= std::min(max_bytes, text.size()); ++size) {
    fuzz_require(!is_valid_utf8(std::string_view(text).substr(0, size)), "the last edge");
  }
}

}  // namespace
}  // namespace folio

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  folio::FuzzBytes in(data, size);
  folio::check(folio::read_case(in));
  const std::string raw(reinterpret_cast<const char*>(data), size);
  const std::string text = folio::sanitize_utf8(raw);
  folio::fuzz_require(text == folio::plain_utf8(raw), "the whole input as text");
  if (size > 0) folio::check_truncation(text.substr(0, 300), data[0]);
  return 0;
}
