#include "tests/engine/text/plain_text.h"

#include <algorithm>
#include <cstdint>

namespace folio {
namespace {

// Is this a prefix of some well-formed code point, by decoding and the code point's own bounds?
bool is_prefix_of_code_point(const std::string& bytes) {
  const auto b = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  std::size_t length = 0;
  std::uint32_t low = 0;
  if (b(0) >= 0xC0 && b(0) <= 0xDF) length = 2, low = 0x80;
  if (b(0) >= 0xE0 && b(0) <= 0xEF) length = 3, low = 0x800;
  if (b(0) >= 0xF0 && b(0) <= 0xF7) length = 4, low = 0x10000;
  if (b(0) < 0x80) return bytes.size() == 1;
  if (length == 0 || bytes.size() > length) return false;
  std::uint32_t first = b(0) & (0x7FU >> length);
  std::uint32_t last = first;
  for (std::size_t i = 1; i < length; ++i) {
    if (i < bytes.size() && (b(i) & 0xC0) != 0x80) return false;
    first = first << 6 | (i < bytes.size() ? b(i) & 0x3FU : 0U);
    last = last << 6 | (i < bytes.size() ? b(i) & 0x3FU : 0x3FU);
  }
  // Some code point between first and last: long enough, in range, not a surrogate.
  if (last < low || first > 0x10FFFF) return false;
  return !(first >= 0xD800 && last <= 0xDFFF);
}

}  // namespace

StopOutcome plain_stops(const PieceTokenizer& tokenizer, const StoppingParams& params,
                        const std::vector<TokenId>& tokens, bool skip_special) {
  StopOutcome outcome;
  for (const TokenId token : tokens) {
    const std::int64_t number = ++outcome.num_tokens;
    const bool may_end = number > params.min_tokens;
    const bool is_end = (!params.ignore_eos && token == tokenizer.end()) ||
                        std::count(params.stop_token_ids.begin(), params.stop_token_ids.end(), token) > 0;
    if (may_end && is_end) {
      outcome.verdict = {FinishReason::kStopToken, token, -1};
      return outcome;
    }
    const std::size_t before = outcome.text.size();
    if (!skip_special || token != tokenizer.end()) outcome.text += tokenizer.piece(token);
    for (std::size_t end = before + 1; may_end && end <= outcome.text.size(); ++end) {
      std::size_t best = 0;
      for (std::size_t i = 0; i < params.stop.size(); ++i) {
        const std::string& stop = params.stop[i];
        if (stop.size() <= end && stop.size() > best &&
            outcome.text.compare(end - stop.size(), stop.size(), stop) == 0) {
          best = stop.size();
          outcome.verdict = {FinishReason::kStopString, -1, static_cast<std::int32_t>(i)};
        }
      }
      if (best == 0) continue;
      outcome.text.resize(params.include_stop ? end : end - best);
      return outcome;
    }
    if (number >= params.max_tokens) {
      outcome.verdict = {FinishReason::kLength, -1, -1};
      return outcome;
    }
  }
  return outcome;
}

std::string plain_utf8(const std::string& bytes) {
  std::string out;
  for (std::size_t i = 0; i < bytes.size();) {
    std::size_t length = 1;
    while (i + length < bytes.size() && length < 4 && is_prefix_of_code_point(bytes.substr(i, length + 1))) ++length;
    const std::string part = bytes.substr(i, length);
    const auto lead = static_cast<unsigned char>(part[0]);
    const std::size_t whole = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    out += is_prefix_of_code_point(part) && length == whole ? part : "\xEF\xBF\xBD";
    i += length;
  }
  return out;
}

}  // namespace folio
