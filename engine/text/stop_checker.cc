#include "engine/text/stop_checker.h"

#include <algorithm>

#include "base/check.h"

namespace folio {
namespace {

std::vector<std::uint32_t> border_lengths(std::string_view s) {
  std::vector<std::uint32_t> border(s.size(), 0);
  std::uint32_t k = 0;
  for (std::size_t i = 1; i < s.size(); ++i) {
    while (k > 0 && s[i] != s[k]) k = border[k - 1];
    if (s[i] == s[k]) ++k;
    border[i] = k;
  }
  return border;
}

}  // namespace

StopChecker::StopChecker(const Tokenizer& tokenizer, const StoppingParams& params, bool skip_special)
    : tokenizer_(tokenizer), params_(params), skip_special_(skip_special) {
  for (std::size_t i = 0; i < params.stop.size(); ++i) {
    FOLIO_CHECK(!params.stop[i].empty(), "an empty stop string is refused at the door");
    matchers_.push_back({static_cast<std::int32_t>(i), border_lengths(params.stop[i])});
  }
  // Of two that end at the same byte the longer one wins; of two equal ones the first given.
  std::stable_sort(matchers_.begin(), matchers_.end(),
                   [](const Matcher& a, const Matcher& b) { return a.fallback.size() > b.fallback.size(); });
  end_tokens_ = params.stop_token_ids;
  if (!params.ignore_eos) {
    end_tokens_.insert(end_tokens_.end(), tokenizer.end_ids().begin(), tokenizer.end_ids().end());
  }
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
}

std::span<const TokenId> StopChecker::masked() const {
  if (num_tokens_ < params_.min_tokens) return end_tokens_;
  return {};
}

StopVerdict StopChecker::push(TokenId token, std::string& released) {
  ++num_tokens_;
  const bool may_end = num_tokens_ > params_.min_tokens;
  if (may_end && std::binary_search(end_tokens_.begin(), end_tokens_.end(), token)) {
    finish(released);
    return {FinishReason::kStopToken, token, -1};
  }

  const std::size_t num_old = held_.size();
  held_.append(text_of(token));
  const Match match = find_stop(num_old);
  if (match.index >= 0) {
    released.append(held_, 0, params_.include_stop ? match.end : match.begin);
    held_.clear();
    return {FinishReason::kStopString, -1, match.index};
  }
  if (num_tokens_ >= params_.max_tokens) {
    finish(released);
    return {FinishReason::kLength, -1, -1};
  }

  std::size_t num_keep = 0;
  for (const Matcher& matcher : matchers_) num_keep = std::max<std::size_t>(num_keep, matcher.matched);
  released.append(held_, 0, held_.size() - num_keep);
  held_.erase(0, held_.size() - num_keep);
  return {};
}

void StopChecker::finish(std::string& released) {
  released.append(held_);
  held_.clear();
  for (Matcher& matcher : matchers_) matcher.matched = 0;
}

StopChecker::Match StopChecker::find_stop(std::size_t begin) {
  const bool may_end = num_tokens_ > params_.min_tokens;
  for (std::size_t i = begin; i < held_.size(); ++i) {
    Match match;
    for (Matcher& matcher : matchers_) {
      const bool complete = advance(matcher, held_[i]);
      // A matcher's bytes are all in held_: push keeps the longest partial match.
      if (complete && may_end && match.index < 0) match = {matcher.index, i + 1 - matcher.fallback.size(), i + 1};
    }
    if (match.index >= 0) return match;
  }
  return {};
}

// True when the string is complete with this byte; its longest proper border is then what is matched of the next one.
bool StopChecker::advance(Matcher& matcher, char byte) const {
  const std::string& stop = params_.stop[static_cast<std::size_t>(matcher.index)];
  std::uint32_t k = matcher.matched;
  while (k > 0 && stop[k] != byte) k = matcher.fallback[k - 1];
  if (stop[k] == byte) ++k;
  const bool complete = k == stop.size();
  matcher.matched = complete ? matcher.fallback[k - 1] : k;
  return complete;
}

std::string_view StopChecker::text_of(TokenId token) const {
  if (skip_special_) {
    const TokenKind kind = tokenizer_.kind(token);
    if (kind == TokenKind::kControl || kind == TokenKind::kUnknown) return {};
  }
  return tokenizer_.piece(token);
}

}  // namespace folio
