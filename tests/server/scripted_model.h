// A model whose greedy next token is a function of the last one: 'a' -> 'b' ... 'z' -> 'a', any other -> 'a'. Its other
// logits fall with the distance. It can be held, so that a test says when a step ends.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "engine/model/model.h"
#include "tests/server/byte_tokenizer.h"

namespace folio::test {

class ScriptedModel final : public Model {
 public:
  explicit ScriptedModel(std::int32_t num_blocks = 64, std::int32_t max_context = 512)
      : num_blocks_(num_blocks), max_context_(max_context) {}

  TokenId next_token(TokenId last) const {
    const auto scripted = script_.find(last);
    if (scripted != script_.end()) return scripted->second;
    return last >= 'a' && last < 'z' ? last + 1 : 'a';
  }
  // What comes after these tokens instead. While no request is there.
  void set_script(std::map<TokenId, TokenId> script) { script_ = std::move(script); }

  void start(const StepBatch& batch) override {
    wait_for_step();
    samples_.clear();
    for (const SampleRequest& request : batch.samples) {
      const std::int32_t row = batch.logit_rows[static_cast<std::size_t>(request.logit_row)];
      samples_.push_back(sample_row(request, logits_after(batch, row), scratch_));
    }
    scores_.clear();
    for (const ScoreRequest& request : batch.scores) {
      scores_.push_back(score_row(request, logits_after(batch, request.row), scratch_));
    }
  }
  ForwardTimes collect(std::span<SampledToken> samples, std::span<SampledToken> scores) override {
    std::ranges::move(samples_, samples.begin());
    std::ranges::move(scores_, scores.begin());
    return {};
  }
  std::int32_t vocab_size() const override { return kVocabSize; }
  std::int32_t max_context() const override { return max_context_; }
  std::int32_t num_blocks() const override { return num_blocks_; }
  std::int32_t block_size() const override { return 16; }

  // From now on a step runs only when it is allowed.
  void hold() { set_allowed(0); }
  void wait_until_held() {  // a step is there and may not run
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return step_waits_; });
  }
  void allow(int steps) {
    {
      const std::lock_guard lock(mutex_);
      allowed_ += steps;
    }
    changed_.notify_all();
  }
  void release() { set_allowed(-1); }

 private:
  std::span<float> logits_after(const StepBatch& batch, std::int32_t row) {
    const TokenId best = next_token(batch.tokens[static_cast<std::size_t>(row)]);
    logits_.resize(kVocabSize);
    for (TokenId id = 0; id < kVocabSize; ++id) {
      logits_[static_cast<std::size_t>(id)] = id == best ? 4.0F : -0.01F * static_cast<float>(id);
    }
    return logits_;
  }
  void set_allowed(int steps) {
    {
      const std::lock_guard lock(mutex_);
      allowed_ = steps;
    }
    changed_.notify_all();
  }
  void wait_for_step() {
    std::unique_lock lock(mutex_);
    step_waits_ = allowed_ == 0;
    if (step_waits_) changed_.notify_all();
    changed_.wait(lock, [this] { return allowed_ != 0; });
    step_waits_ = false;
    if (allowed_ > 0) --allowed_;
  }

  const std::int32_t num_blocks_;
  const std::int32_t max_context_;
  std::map<TokenId, TokenId> script_;
  std::vector<float> logits_;  // of one row
  std::vector<SampledToken> samples_, scores_;
  SamplerScratch scratch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int allowed_ = -1;  // < 0: any number
  bool step_waits_ = false;
};

}  // namespace folio::test
