#include "engine/text/stop_checker.h"

#include <algorithm>
#include <utility>

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

StopRules::StopRules(const Tokenizer& tokenizer, StoppingParams params, bool skip_special)
    : tokenizer_(tokenizer),
      min_tokens_(params.min_tokens),
      include_stop_(params.include_stop),
      skip_special_(skip_special),
      end_tokens_(std::move(params.stop_token_ids)) {
  matchers_.reserve(params.stop.size());
  for (std::size_t i = 0; i < params.stop.size(); ++i) {
    FOLIO_CHECK(!params.stop[i].empty(), "an empty stop string is refused at the door");
    std::vector<std::uint32_t> fallback = border_lengths(params.stop[i]);
    matchers_.push_back({std::move(params.stop[i]), std::move(fallback), static_cast<std::int32_t>(i)});
  }
  // Of two that end at the same byte the longer one wins; of two equal ones the first given.
  std::stable_sort(matchers_.begin(), matchers_.end(),
                   [](const Matcher& a, const Matcher& b) { return a.stop.size() > b.stop.size(); });
  if (!params.ignore_eos) {
    end_tokens_.insert(end_tokens_.end(), tokenizer.end_ids().begin(), tokenizer.end_ids().end());
  }
  std::sort(end_tokens_.begin(), end_tokens_.end());
  end_tokens_.erase(std::unique(end_tokens_.begin(), end_tokens_.end()), end_tokens_.end());
}

// True when the string is complete with this byte; its longest proper border is then what is matched of the next one.
bool StopRules::advance(std::size_t matcher, char byte, std::uint32_t& matched) const {
  const std::string& stop = matchers_[matcher].stop;
  const std::vector<std::uint32_t>& fallback = matchers_[matcher].fallback;
  std::uint32_t k = matched;
  while (k > 0 && stop[k] != byte) k = fallback[k - 1];
  if (stop[k] == byte) ++k;
  const bool complete = k == stop.size();
  matched = complete ? fallback[k - 1] : k;
  return complete;
}

std::string_view StopRules::text_of(TokenId token) const {
  if (skip_special_ && is_special(tokenizer_.kind(token))) return {};
  return tokenizer_.piece(token);
}

StopChecker::StopChecker(std::shared_ptr<const StopRules> rules, std::int64_t max_tokens)
    : rules_(std::move(rules)), max_tokens_(max_tokens) {}

std::span<const TokenId> StopChecker::masked(std::int64_t index) const {
  if (index < rules_->min_tokens_) return rules_->end_tokens_;
  return {};
}

StopVerdict StopChecker::push(TokenId token, std::string& released) {
  matched_.resize(rules_->matchers_.size());
  ++num_tokens_;
  const bool may_end = num_tokens_ > rules_->min_tokens_;
  if (may_end && std::binary_search(rules_->end_tokens_.begin(), rules_->end_tokens_.end(), token)) {
    finish(released);
    return {FinishReason::kStopToken, token, -1};
  }

  const std::size_t num_old = held_.size();
  held_.append(rules_->text_of(token));
  const Match match = find_stop(num_old);
  if (match.index >= 0) {
    released.append(held_, 0, rules_->include_stop_ ? match.end : match.begin);
    held_.clear();
    return {FinishReason::kStopString, -1, match.index};
  }
  if (num_tokens_ >= max_tokens_) {
    finish(released);
    return {FinishReason::kLength, -1, -1};
  }

  std::size_t num_keep = 0;
  for (const std::uint32_t matched : matched_) num_keep = std::max<std::size_t>(num_keep, matched);
  released.append(held_, 0, held_.size() - num_keep);
  held_.erase(0, held_.size() - num_keep);
  return {};
}

void StopChecker::finish(std::string& released) {
  released.append(held_);
  held_.clear();
  std::fill(matched_.begin(), matched_.end(), 0);
}

StopChecker::Match StopChecker::find_stop(std::size_t begin) {
  const bool may_end = num_tokens_ > rules_->min_tokens_;
  for (std::size_t i = begin; i < held_.size(); ++i) {
    Match match;
    for (std::size_t m = 0; m < matched_.size(); ++m) {
      const bool complete = rules_->advance(m, held_[i], matched_[m]);
      if (!complete || !may_end || match.index >= 0) continue;
      // A matcher's bytes are all in held_: push keeps the longest partial match.
      const StopRules::Matcher& matcher = rules_->matchers_[m];
      match = {matcher.index, i + 1 - matcher.stop.size(), i + 1};
    }
    if (match.index >= 0) return match;
  }
  return {};
}

}  // namespace folio
