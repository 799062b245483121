#include "engine/token_stream.h"

#include <algorithm>
#include <utility>

namespace folio {

void TokenStream::started(std::int64_t prompt_tokens, std::int64_t cached_tokens) {
  const std::lock_guard lock(mutex_);
  pending_.prompt = Usage{prompt_tokens, cached_tokens, 0};
  news_ = true;
}

void TokenStream::push_prompt(SampledToken token) {
  const std::lock_guard lock(mutex_);
  pending_.prompt_logprobs.push_back(std::move(token));
  news_ = true;
}

void TokenStream::push(std::int32_t index, SampledToken token, std::string_view released) {
  const std::lock_guard lock(mutex_);
  OutputDelta& out = delta(index);
  out.tokens.push_back(std::move(token));
  out.bytes.append(released);
}

void TokenStream::finish(std::int32_t index, FinishReason reason, TokenId stop_token, std::int32_t stop_index,
                         std::string_view released) {
  const std::lock_guard lock(mutex_);
  OutputDelta& out = delta(index);
  out.bytes.append(released);
  out.finish = reason;
  out.stop_token = stop_token;
  out.stop_index = stop_index;
}

void TokenStream::end(StreamEnd end) {
  const std::lock_guard lock(mutex_);
  pending_.end = std::move(end);
  news_ = true;
}

void TokenStream::notify() {
  {
    const std::lock_guard lock(mutex_);
    if (!news_ || notified_) return;
    news_ = false;
    notified_ = true;
  }
  // Without the lock: the front may take from within, or on its own thread at once.
  on_ready_();
}

TokenStream::Taken TokenStream::take() {
  const std::lock_guard lock(mutex_);
  if (pending_.empty()) notified_ = false;
  news_ = false;
  return std::exchange(pending_, {});
}

// The delta of this index that was not taken yet.
OutputDelta& TokenStream::delta(std::int32_t index) {
  news_ = true;
  auto& outputs = pending_.outputs;
  const auto at = std::lower_bound(outputs.begin(), outputs.end(), index,
                                   [](const OutputDelta& out, std::int32_t i) { return out.index < i; });
  if (at != outputs.end() && at->index == index) return *at;
  const auto inserted = outputs.insert(at, OutputDelta{});
  inserted->index = index;
  return *inserted;
}

}  // namespace folio
