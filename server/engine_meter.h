// The histograms of interface.md's metrics: what the engine does, counted as it happens.
#pragma once
#include <array>

#include "engine/observer.h"
#include "server/histogram.h"

namespace folio {

class EngineMeter final : public EngineObserver {
 public:
  static constexpr std::array<const char*, 5> kPhaseNames = {"schedule", "build", "forward", "sample", "commit"};

  EngineMeter();

  // Engine thread.
  void on_step(const StepRecord& step) override;
  void on_first_token(Duration since_arrival) override;
  void on_next_token(Duration since_last) override;
  void on_end(const RequestRecord& request) override;

  // Any thread. Seconds and tokens; of requests that ended, but for the first two.
  const Histogram& time_to_first_token() const { return time_to_first_token_; }
  const Histogram& inter_token_latency() const { return inter_token_latency_; }
  const Histogram& e2e_latency() const { return e2e_latency_; }
  const Histogram& queue_time() const { return queue_time_; }
  const Histogram& prefill_time() const { return prefill_time_; }  // only of those that gave a token
  const Histogram& decode_time() const { return decode_time_; }    // likewise
  const Histogram& prompt_tokens() const { return prompt_tokens_; }
  const Histogram& generation_tokens() const { return generation_tokens_; }
  const Histogram& step_phase(std::size_t phase) const { return step_phases_[phase]; }  // as in kPhaseNames

 private:
  Histogram time_to_first_token_, inter_token_latency_, e2e_latency_, queue_time_, prefill_time_, decode_time_;
  Histogram prompt_tokens_, generation_tokens_;
  std::array<Histogram, kPhaseNames.size()> step_phases_;
};

}  // namespace folio
