// What the engine keeps beside the scheduler for each live request: its stream and its stop checkers. Sampled tokens
// pass the checkers here, and what commit said becomes pushes. Engine thread only.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/params.h"
#include "engine/observer.h"
#include "engine/sampling/sampler.h"
#include "engine/text/stop_checker.h"
#include "engine/token_stream.h"
#include "scheduler/events.h"
#include "scheduler/request.h"
#include "scheduler/step_plan.h"

namespace folio {

class Delivery {
 public:
  // REQUIRES max_tokens already clipped. The rules are the request's, shared by its sequences.
  void add(const Request& request, const std::shared_ptr<const StopRules>& rules, std::shared_ptr<TokenStream> stream);
  // The error that the request's stream will end with; the first one stands. Unknown ids are ignored.
  void set_error(RequestId id, const Error& error);
  // Ends the stream of a request that the scheduler did not take.
  void refuse(RequestId id, Error error);
  std::vector<RequestId> live_ids() const;
  // How a request of the events that are to be delivered ended.
  Outcome outcome(const RequestSummary& summary) const;

  // Sets what may not be sampled in each of the plan's samples.
  void mask(const StepPlan& plan, std::span<SampleRequest> samples) const;
  // Sample i of the plan became tokens[i]: verdicts()[i] says whether that ended its sequence. One that is kNoToken is
  // passed over: its request is to be ended. So is one whose sequence ended while the step was in flight.
  void check_stops(const StepPlan& plan, std::span<const SampledToken> tokens);
  std::span<const FinishReason> verdicts() const { return verdicts_; }

  // Pushes what a commit said (tokens: those of check_stops; scores: of the step; both moved from), then notifies each
  // stream that got something, once.
  void deliver(const Events& events, std::span<SampledToken> tokens, std::span<SampledToken> scores);

 private:
  struct Live {
    std::shared_ptr<TokenStream> stream;
    std::vector<StopChecker> checkers;  // by index
    std::int64_t num_prompt_tokens = 0;
    std::optional<TokenId> first_prompt_token;  // if the prompt's log probabilities are asked for
    std::optional<Error> error;
    std::int64_t num_tokens = 0;
    // Indices that ended before the request's first step. They are told once it is known what the cache had of the
    // prompt, or that the request never starts.
    std::vector<std::pair<std::int32_t, FinishReason>> early_ends;
    bool started = false;
    bool touched = false;  // in this delivery
  };
  Live& at(RequestId id) { return *live_.at(id); }
  void start(Live& live, std::int64_t cached_tokens);
  void finish(Live& live, const SequenceEvent& event);
  void end(const RequestSummary& summary);
  void touch(Live& live);

  std::unordered_map<RequestId, std::unique_ptr<Live>> live_;
  std::vector<Live*> touched_;
  std::vector<std::shared_ptr<TokenStream>> ended_;  // their requests are gone, their notification is not
  // Of the step's samples.
  std::vector<StopVerdict> stops_;
  std::vector<FinishReason> verdicts_;
  std::vector<std::string> released_;
};

}  // namespace folio
